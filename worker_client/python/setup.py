"""The distribution agg-server; deploy/wheel.sh puts the binaries beside it."""

import pathlib
import re

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

_HERE = pathlib.Path(__file__).parent


class Wheel(bdist_wheel):
    """For every Python, and one platform: ctypes loads the library."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class PlatformDistribution(Distribution):
    """One that has binaries."""

    def has_ext_modules(self):
        return True


setup(
    name="agg-server",
    version=re.search(r'__version__ = "(.*)"', (
        _HERE / "agg_server" / "__init__.py").read_text()).group(1),
    description="A sharded gradient server: Adasum, AdaCons, AdaScale",
    long_description=(_HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=["agg_server"],
    package_data={"agg_server": ["py.typed", "NOTICES", "round_log.proto",
                                 "_lib/*", "_bin/*", "docs/*.md",
                                 "docs/examples/*.py"]},
    install_requires=["numpy"],
    extras_require={"torch": ["torch>=2.1"], "pandas": ["pandas"],
                    "plot": ["matplotlib"]},
    entry_points={"console_scripts": [
        "agg-launch = agg_server.launch:main",
        "aggctl = agg_server.programs:aggctl",
        "agg_combine = agg_server.programs:agg_combine",
        "agg_pull = agg_server.programs:agg_pull",
        "agg_report = agg_server.programs:agg_report",
        "agg_server = agg_server.programs:agg_server",
    ]},
    distclass=PlatformDistribution,
    cmdclass={"bdist_wheel": Wheel},
)
