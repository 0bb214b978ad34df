import array, base64, bisect, calendar, collections, copy, csv, datetime as dt, decimal, fractions, functools, hashlib
import heapq, io, itertools, json, math, operator, pickle, random, re, statistics, string, struct, sys, textwrap, time
import unicodedata, urllib.parse, uuid, warnings, zlib, zoneinfo
import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy import fft, integrate, interpolate, linalg, ndimage, optimize, signal, sparse, spatial, special, stats
from scipy.cluster import hierarchy, vq as cluster_vq
from scipy.sparse import csgraph
from sklearn.base import clone
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import load_iris, make_blobs, make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, IsolationForest
from sklearn.ensemble import RandomForestClassifier, StackingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.metrics import accuracy_score, classification_report, confusion_matrix, multilabel_confusion_matrix
from sklearn.metrics import pairwise_distances_argmin, roc_auc_score, roc_curve, silhouette_score
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, TimeSeriesSplit, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import KBinsDiscretizer, LabelBinarizer, LabelEncoder, OrdinalEncoder, PolynomialFeatures
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import resample, shuffle
from sklearn.utils.class_weight import compute_class_weight

warnings.simplefilter("ignore")


def shown(value):
    """A value with its type, or the types in it."""
    if isinstance(value, (list, tuple)) and len(value) <= 8:
        return [type(value).__name__, *map(shown, value)]
    kind = getattr(value, "dtype", None)
    return [str(kind) if isinstance(kind, np.dtype) else type(value).__name__, value]


def outcome(compute):
    try:
        return shown(compute())
    except Exception as error:
        return ["error", type(error).__name__, str(error)]
