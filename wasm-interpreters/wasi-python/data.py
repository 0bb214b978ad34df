import numpy, pandas
