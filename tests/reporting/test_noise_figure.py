"""The figure of proposed noise bounds: a panel per output, the frontier falling, the proposal marked."""

import numpy as np

import rkhs_control as rc
from rkhs_control.reporting.palette import BLUE, RED


def test_every_output_has_a_panel_with_its_frontier_and_the_proposal(rng, tmp_path):
    t = np.arange(300)
    outputs = np.stack([3.0 * np.sin(t / 40.0), np.round(np.cos(t / 25.0) / 0.1) * 0.1, np.full(300, 2.0)], axis=1)
    outputs[:, 0] += rng.uniform(-0.1, 0.1, 300)
    proposal = rc.propose_noise_bound([(outputs, np.zeros((299, 1)))], state_names=["smooth", "coarse", "stuck"])
    figure = rc.noise_figure(proposal)
    smooth, coarse, stuck = figure.axes
    for i, axes in enumerate((smooth, coarse)):
        (curve,) = [line for line in axes.lines if line.get_color() == RED]
        assert (np.diff(curve.get_ydata()) <= 0.0).all()
        (mark,) = [line for line in axes.lines if line.get_color() == BLUE]
        assert mark.get_xdata()[0] == proposal.bounds[i]
        assert axes.get_title() == f"{proposal.state_names[i]}: {proposal.bounds[i]:g} proposed"
    assert "half a step" in [text.get_text() for text in coarse.texts]
    assert "half a step" not in [text.get_text() for text in smooth.texts]
    assert stuck.get_title() == "stuck: nothing proposed"
    assert not stuck.lines
    figure.savefig(tmp_path / "noise.png")
    assert (tmp_path / "noise.png").stat().st_size > 10_000
