import base64, collections, csv, dataclasses, datetime, decimal, fractions, functools, hashlib, io, itertools
import json, linecache, math, random, re, statistics, string, sys, textwrap, traceback, typing, urllib.parse, uuid
# Of the packages in interpreter.toml.
sys.path.append("/usr/local/lib/site-packages")
