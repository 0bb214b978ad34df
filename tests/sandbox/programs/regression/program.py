import numpy as np
from scipy import stats

x, y = np.loadtxt("/input/points.csv", delimiter=",", skiprows=1, unpack=True)
line = stats.linregress(x, y)
{"slope": round(line.slope, 4), "intercept": round(line.intercept, 4), "r2": round(line.rvalue**2, 4)}
