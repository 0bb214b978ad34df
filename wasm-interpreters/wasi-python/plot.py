import dataclasses
import io
import matplotlib
matplotlib.use("agg")
from matplotlib import font_manager, pyplot, text


def fall_back_to_cjk(path, first="\u1100"):
    """Texts with characters that matplotlib's own fonts lack (Hangul, Kana, Han and others from `first` on) are drawn
    with the font at `path` besides. Only those: opening it takes longer than most plots."""
    font_manager.fontManager.addfont(path)
    family = font_manager.FontProperties(fname=path).get_name()
    # What programs written for other systems ask for.
    font = next(font for font in font_manager.fontManager.ttflist if font.fname == path)
    others = "SimHei,Microsoft YaHei,PingFang SC,Hiragino Sans,Yu Gothic,MS Gothic,Malgun Gothic,NanumGothic"
    others += ",AppleGothic,Noto Sans CJK JP,Noto Sans CJK KR,Noto Sans CJK TC,WenQuanYi Micro Hei,Arial Unicode MS"
    font_manager.fontManager.ttflist += [dataclasses.replace(font, name=other) for other in others.split(",")]
    set_text = text.Text.set_text

    def set_text_and_family(self, content):
        set_text(self, content)
        shown = self.get_text()
        if not shown.isascii() and max(shown) >= first and family not in self.get_fontfamily():
            self.set_fontfamily([*self.get_fontfamily(), family])

    text.Text.set_text = set_text_and_family
    # A font that is missing is named once, not for each text.
    named = set()
    font_manager._log.addFilter(lambda record: not (record.getMessage() in named or named.add(record.getMessage())))


fall_back_to_cjk("/usr/local/lib/fonts/mplfonts/fonts/NotoSansCJKsc-Regular.otf")
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
