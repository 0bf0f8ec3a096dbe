# SPDX-License-Identifier: Apache-2.0
"""A wheel of one platform and any Python 3: it holds libatoll, and no extension module."""
import os
import pathlib

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Platform(Distribution):
    def has_ext_modules(self):
        return (pathlib.Path(__file__).parent / "atoll/lib").exists()


class AnyPython(bdist_wheel):
    def get_tag(self):
        tag = super().get_tag()
        return ("py3", "none", tag[2])


setup(version=os.environ.get("ATOLL_VERSION", "0"), distclass=Platform, cmdclass={"bdist_wheel": AnyPython})
