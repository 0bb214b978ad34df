import io
import matplotlib
matplotlib.use("agg")
from matplotlib import font_manager, pyplot
# One figure drawn: fonts are found and backends loaded once, here.
figure, axes = pyplot.subplots()
axes.plot([0, 1], [0, 1], label="line")
axes.set_title("title")
axes.legend()
figure.savefig(io.BytesIO(), format="png")
pyplot.close("all")
# Open files do not survive a snapshot, and each cached font holds one.
font_manager._get_font.cache_clear()
