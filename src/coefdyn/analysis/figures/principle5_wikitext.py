"""Principle 5 on language: perplexity for each b_j."""

from matplotlib.figure import Figure

from coefdyn.analysis.figures import Tables
from coefdyn.analysis.style import COLUMN, SCALINGS, paper_style

CAPTION = (
    "Principle 5 on language. Test perplexity of Mamba-2 and softmax attention under different "
    "b_j. The paper's numbers are of WikiText-103 at its size; a smaller scale on WikiText-2 can "
    "be compared with them in its order only."
)
ROWS = {  # model -> (its name, b_j, the paper's perplexity)
    "mamba2_unscaled": ("Mamba-2", "one", 29.23),
    "mamba2_inverse_sqrt": ("Mamba-2", "inverse_sqrt", 28.84),
    "mamba2": ("Mamba-2", "step_size", 28.87),
    "softmax_attention_unscaled": ("softmax", "one", 32.69),
    "softmax_attention": ("softmax", "inverse_sqrt", 31.73),
}
COLOURS = {**{name: colour for name, (_, colour) in SCALINGS.items()}, "step_size": "#009E73"}
WORDS = {**{name: words for name, (words, _) in SCALINGS.items()}, "step_size": r"$\Delta_j$"}


def draw(tables: Tables) -> Figure:
    found = tables["principle5_wikitext"].set_index("model")["test/perplexity"]
    with paper_style():
        figure = Figure(figsize=(COLUMN * 1.3, 2.7), layout="constrained")
        axes = figure.subplots()
        labels = []
        for place, (model, (name, scaling, paper)) in enumerate(ROWS.items()):
            labels.append(f"{name}\n$b=$ {WORDS[scaling]}\n(paper: {paper})")
            if model in found and found[model] == found[model]:
                axes.bar(place, found[model], 0.7, color=COLOURS[scaling])
                text = f"{found[model]:.1f}"
                axes.annotate(text, (place, found[model]), ha="center", va="bottom", fontsize=7)
        axes.set_xticks(range(len(ROWS)), labels, fontsize=6.5)
        axes.set_ylabel("test perplexity")
        axes.margins(y=0.15)
    return figure
