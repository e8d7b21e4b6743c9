"""Envelopes: one interface, seven ways to bound an unknown function.

| class | bounds | cost of a query |
|---|---|---|
| `OptimalEnvelope` | the tightest there are | a path, about a millisecond |
| `ConicEnvelope` | the same, by an interior-point solver | seconds |
| `AlternatingEnvelope` | valid after any number of turns, optimal in the limit | a path per turn |
| `ClosedFormEnvelope` | Proposition 3, around a nominal model | a matrix-vector product |
| `EnergyEnvelope` | from the energy of the noise instead of its bounds | a scalar search |
| `LipschitzEnvelope` | from the best single sample; for comparison | a kernel row |
| `GaussianProcessEnvelope` | with a probability only; for comparison | a matrix-vector product |

What a method can do is declared on its class: `is_certain`, `has_witnesses`, `has_gradients`.
"""
