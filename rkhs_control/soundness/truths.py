r"""Functions of an RKHS in ball arithmetic: truths known to any number of digits, to compare bounds with.

A *section* represents a value or a derivative: `k_z`, or its derivative by `z_j`. A combination of sections is
a function and, by the reproducing property, a functional: `L f = <L, f>`. So one bilinear form, `inner`, gives norms,
values, derivatives and differences alike. Every number is a ball that certainly contains the true one.

The kernels are written out again here, from their textbook formulas: nothing that computes bounds is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flint import arb

from ..engine.functionals import Derivative, Functional, Points
from ..kernels.base import Kernel
from ..kernels.composite import Product, Scale, Sum
from ..kernels.radial import Matern12, Matern32, Matern52, Radial, RationalQuadratic, SquaredExponential


class KernelSection(NamedTuple):
    """`k_z`, or its derivative by one coordinate of `z`."""

    point: tuple[arb, ...]
    dimension: int | None = None


Combination = list[tuple[arb, KernelSection]]
"""Weights and sections: a function, or a functional."""


@dataclass(frozen=True, eq=False)
class Truth:
    """A function of known norm."""

    kernel: Kernel
    sections: Combination

    def apply(self, functional: Combination) -> arb:
        """`L f`."""
        return inner(self.kernel, functional, self.sections)

    def norm(self) -> arb:
        """The norm in the RKHS of the kernel, as a ball."""
        return root(inner(self.kernel, self.sections, self.sections))


def value_at(point: Iterable[float | arb]) -> Combination:
    """`f -> f(z)`."""
    return [(arb(1), KernelSection(tuple(map(arb, point))))]


def combination(functional: Functional) -> Combination:
    """A functional that the engine bounds."""
    if isinstance(functional, Derivative):
        return [(arb(1), KernelSection(tuple(map(arb, functional.point.tolist())), functional.dimension))]
    assert isinstance(functional, Points)
    rows = zip(functional.coefficients.tolist(), functional.points.tolist(), strict=True)
    return [(arb(weight), KernelSection(tuple(map(arb, point)))) for weight, point in rows]


def inner(kernel: Kernel, first: Combination, second: Combination) -> arb:
    """`<L, f>`, bilinear in the sections."""
    return sum((a * b * _inner(kernel, p, q) for a, p in first for b, q in second), arb(0))


def root(square: arb) -> arb:
    """The square root of a number known not to be negative, whatever its ball looks like."""
    return square.nonnegative_part().sqrt()


def _inner(kernel: Kernel, p: KernelSection, q: KernelSection) -> arb:
    """Of two sections: the kernel, or its derivatives by `p` and `q`; by `q` they are those by `p - q`, negated."""
    difference = [a - b for a, b in zip(p.point, q.point, strict=True)]
    jet = _jet(kernel, difference, i=p.dimension, j=q.dimension)
    if p.dimension is not None and q.dimension is not None:
        return -jet.mixed
    if q.dimension is not None:
        return -jet.by_second
    return jet.value if p.dimension is None else jet.by_first


class _Jet(NamedTuple):
    """A function of `x - y` with its derivatives by coordinates `i` and `j` of that; zeros for those not asked for."""

    value: arb
    by_first: arb
    by_second: arb
    mixed: arb


def _jet(kernel: Kernel, difference: Sequence[arb], *, i: int | None, j: int | None) -> _Jet:
    if isinstance(kernel, Scale):
        return _Jet(*(arb(kernel.factor) * part for part in _jet(kernel.kernel, difference, i=i, j=j)))
    if isinstance(kernel, Sum | Product):
        a, b = (_jet(part, difference, i=i, j=j) for part in (kernel.a, kernel.b))
        if isinstance(kernel, Sum):
            return _Jet(*(x + y for x, y in zip(a, b, strict=True)))
        return _Jet(
            a.value * b.value,
            a.by_first * b.value + a.value * b.by_first,
            a.by_second * b.value + a.value * b.by_second,
            a.mixed * b.value + a.by_first * b.by_second + a.by_second * b.by_first + a.value * b.mixed,
        )
    assert isinstance(kernel, Radial)
    given = kernel.lengthscale
    scales = [arb(scale) for scale in ([given] * len(difference) if isinstance(given, float) else given)]
    s = sum(((d / scale) ** 2 for d, scale in zip(difference, scales, strict=True)), arb(0))
    if i is None and j is None:
        return _Jet(_profile(kernel, s), arb(0), arb(0), arb(0))
    slope, curvature = _slopes(kernel, s)
    by_first, by_second = (arb(0) if c is None else 2 * difference[c] / scales[c] ** 2 for c in (i, j))
    mixed = curvature * by_first * by_second
    if i is not None and i == j:
        mixed += 2 * slope / scales[i] ** 2
    return _Jet(_profile(kernel, s), slope * by_first, slope * by_second, mixed)


def _profile(kernel: Radial, s: arb) -> arb:
    """The kernel as a function of the squared scaled distance."""
    if isinstance(kernel, SquaredExponential):
        return (-s / 2).exp()
    if isinstance(kernel, RationalQuadratic):
        return (-arb(kernel.alpha) * (1 + s / (2 * arb(kernel.alpha))).log()).exp()
    if isinstance(kernel, Matern12):
        return (-root(s)).exp()
    if isinstance(kernel, Matern32):
        r = root(3 * s)
        return (1 + r) * (-r).exp()
    assert isinstance(kernel, Matern52)
    r = root(5 * s)
    return (1 + r + r**2 / 3) * (-r).exp()


def _slopes(kernel: Radial, s: arb) -> tuple[arb, arb]:
    """The first two derivatives of the profile; at zero the second of Matern32 counts as none, as it meets a zero."""
    if isinstance(kernel, SquaredExponential):
        value = (-s / 2).exp()
        return -value / 2, value / 4
    if isinstance(kernel, RationalQuadratic):
        alpha = arb(kernel.alpha)
        base, value = 1 + s / (2 * alpha), _profile(kernel, s)
        return -value / (2 * base), value * (alpha + 1) / (4 * alpha * base**2)
    if isinstance(kernel, Matern32):
        r = root(3 * s)
        return -arb(3) / 2 * (-r).exp(), arb(0) if s == 0 else arb(9) / 4 / r * (-r).exp()
    assert isinstance(kernel, Matern52)
    r = root(5 * s)
    return -arb(5) / 6 * (1 + r) * (-r).exp(), arb(25) / 12 * (-r).exp()
