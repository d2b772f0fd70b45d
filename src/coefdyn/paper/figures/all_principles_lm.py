"""All principles on language: what breaking one of them costs."""

from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables
from coefdyn.paper.language_figure import Look, draw_language
from coefdyn.plot.style import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY

CAPTION = (
    "All principles on language; not in the paper. A design that breaks no principle (A decays and "
    "reflects, b = z/sqrt(n), identity readout, eta = 1, no norm after the sequence model) against "
    "designs that break one each: P1 no finite recurrent form (softplus, eta = sum), P2 nothing "
    "suppresses a key by its input (A = cI, b = 1/sqrt(n)), P3 no position (A = I, no "
    "convolution), P4 A only scales all channels alike, P5 no 1/sqrt(n), P6 A grows and eta does "
    "not. Left: test perplexity. Right: the training loss."
)
ALSO = ("all_principles_lm_curves",)
LOOKS = {
    "all_principles": Look("breaks\nnone", GREY),
    "all_but_p1": Look("breaks\nP1", BLUE),
    "all_but_p2": Look("breaks\nP2", ORANGE),
    "all_but_p3": Look("breaks\nP3", GREEN),
    "all_but_p4": Look("breaks\nP4", PINK),
    "all_but_p5": Look("breaks\nP5", SKY),
    "all_but_p6": Look("breaks\nP6", RED),
}


def draw(tables: Tables) -> Figure:
    return draw_language(tables["all_principles_lm"], tables[ALSO[0]], LOOKS)
