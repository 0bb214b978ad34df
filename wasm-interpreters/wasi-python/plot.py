import io
import matplotlib
matplotlib.use("agg")
from matplotlib import font_manager, pyplot

# Figures drawn: fonts are found and backends loaded once, here, and the code of it is specialised.
for number in range(4):
    figure, axes = pyplot.subplots()
    axes.plot([0, 1], [0, 1], label="line")
    axes.set_title("title")
    axes.legend()
    figure.savefig(io.BytesIO(), format="png")
    pyplot.close("all")
# Open files do not survive a snapshot, and each cached font holds one.
font_manager._get_font.cache_clear()
