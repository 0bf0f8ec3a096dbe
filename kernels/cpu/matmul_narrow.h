#ifndef MATMUL_NARROW_H
#define MATMUL_NARROW_H
/* The emulated products of matmul_narrow.c, in place of the library's. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"

/* p of f32; |err| depends on c->emulation. */
void matmul_narrow(struct cpu *c, const struct product *p);

#endif
