import matplotlib.pyplot as plt
import numpy as np

x = np.linspace(0, 2 * np.pi, 200)
figure, axes = plt.subplots()
axes.plot(x, np.sin(x), label="sine")
axes.set_title("One turn")
axes.legend()
figure.savefig("/output/sine.svg")
len(figure.axes)
