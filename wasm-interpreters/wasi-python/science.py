import scipy.integrate, scipy.interpolate, scipy.linalg, scipy.optimize, scipy.signal, scipy.sparse, scipy.stats
import seaborn, sympy
import sklearn.cluster, sklearn.compose, sklearn.decomposition, sklearn.ensemble, sklearn.feature_extraction.text
import sklearn.impute, sklearn.linear_model, sklearn.metrics, sklearn.model_selection, sklearn.neighbors
import sklearn.pipeline, sklearn.preprocessing, sklearn.svm, sklearn.tree, sklearn.utils._random
import statsmodels.api, statsmodels.formula.api
