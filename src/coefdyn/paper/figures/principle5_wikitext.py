"""Principle 5 on language: perplexity for each b_j."""

from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables
from coefdyn.paper.language_figure import Look, draw_language
from coefdyn.plot.style import GREEN, SCALINGS

CAPTION = (
    "Principle 5 on language. Left: test perplexity of Mamba-2 and softmax attention (hatched) "
    "under different b_j. The paper's numbers are of WikiText-103 at its size; a smaller scale on "
    "WikiText-2 can be compared with them in its order only. Right: the training loss."
)
ALSO = ("principle5_wikitext_curves",)
ROWS = {  # model -> (its name, b_j, the paper's perplexity)
    "mamba2_unscaled": ("Mamba-2", "one", 29.23),
    "mamba2_inverse_sqrt": ("Mamba-2", "inverse_sqrt", 28.84),
    "mamba2": ("Mamba-2", "step_size", 28.87),
    "softmax_attention_unscaled": ("softmax", "one", 32.69),
    "softmax_attention": ("softmax", "inverse_sqrt", 31.73),
}
CHOICES = {**SCALINGS, "step_size": (r"$\Delta_j$", GREEN)}


def draw(tables: Tables) -> Figure:
    looks = {
        model: Look(
            f"{name}\n$b=$ {CHOICES[scaling][0]}\npaper:\n{paper}",
            CHOICES[scaling][1],
            dashed=name == "softmax",
        )
        for model, (name, scaling, paper) in ROWS.items()
    }
    return draw_language(tables["principle5_wikitext"], tables[ALSO[0]], looks)
