r"""Bounds around a projection: what the closed form and the energy bound share.

Let `g_a = sum_i a_i k_{x_i}` be any centre, and `||f - g_a|| <= R`, the furthest that `f` can be from it. Then for
*every* weights `w`

    | L f - sum_i w_i f(x_i) |  <=  R || L - sum_i w_i k_{x_i} ||  +  | < g_a, L - sum_i w_i k_{x_i} > |

and the last term vanishes for `w = K^-1 K_XL`. So neither a singular kernel matrix nor an inexact solve can make
such a bound wrong: both only make it wider. (With a nugget, the same in the product of the RKHS with R^n.)
"""

from __future__ import annotations

import numpy as np

from ..arithmetic.compiled_rounding import dot_up
from ..arithmetic.rounding import UNIT_ROUNDOFF, product_up, sqrt_up, sum_up
from ..data.arrays import FloatArray, IndexArray
from ..engine.functionals import Functional
from ..engine.gram import Gram
from ..engine.witness import Witness


def deviation_up(functional: Functional, gram: Gram, weights: FloatArray, *, centre: Witness, furthest: float) -> float:
    """The right-hand side of the inequality above, rounded up; `gram` holds the nugget."""
    n = len(gram.X)
    everywhere: IndexArray = np.arange(n, dtype=np.int64)
    distance = Witness(everywhere, weights).residual_norm_up(functional, gram)
    row = functional.row(gram.kernel, gram.X[centre.indices])
    residual = row - gram.values(centre.indices, weights)
    # Errors of the kernel values and of the sums in `residual`, entry by entry
    relative = gram.kernel.rounding(gram.X.shape[1]) + (n + 8) * UNIT_ROUNDOFF
    size = (gram.kernel.variance + gram.nugget) * float(np.abs(weights).sum())
    error = functional.row_error(gram.kernel) + 2.0 * UNIT_ROUNDOFF * np.abs(row) + relative * size
    return sum_up(
        product_up(furthest, distance),
        dot_up(np.abs(centre.weights), np.abs(residual) + error),
    )


def distance_up(norm2: float, square: float, least_inner: float) -> float:
    """`sqrt(norm2 + ||g||^2 - 2 <f, g>)`, the largest distance of `f` from `g`, rounded up.

    Given their squared norms, rounded up, and the least inner product, rounded down.
    """
    return sqrt_up(max(0.0, sum_up(norm2, square, -2.0 * least_inner)))
