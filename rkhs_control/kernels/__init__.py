r"""Kernels: squared exponential, Matern, rational quadratic, and their scales, sums and products.

Every kernel here is stationary, so it is known by its *fall* `k(x, x) - k(x, y)`, which geostatistics calls the
semivariogram. The fall is what gets computed, to full relative accuracy, and `k(x, y)` is the variance less the fall:
two inputs a hair's breadth apart then have a squared distance in the RKHS, `2 (k(x, x) - k(x, y))`, that is right to
the last digits instead of lost in `1 - 1`. The evaluation of witnesses (`engine/witness.py`) lives on that.

Adding a kernel is one small class: see `docs/kernels.md`.
"""
