# SPDX-License-Identifier: Apache-2.0
"""Central differences, which gradients of a reference are held against."""


def apart(f, rows, analytic, h):
    """Largest difference between the analytic gradient of f() and its central differences, over the largest element of the gradient.
    rows: lists of numbers that f reads; analytic: lists of the same shape."""
    worst, size = 0.0, 0.0
    for row, gradient in zip(rows, analytic):
        for k, was in enumerate(row):
            row[k] = was + h
            up = f()
            row[k] = was - h
            down = f()
            row[k] = was
            worst = max(worst, abs((up - down) / (2 * h) - gradient[k]))
            size = max(size, abs(gradient[k]))
    return worst / size
