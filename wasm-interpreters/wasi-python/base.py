import base64, collections, csv, dataclasses, datetime, decimal, fractions, functools, hashlib, io, itertools
import json, linecache, math, random, re, statistics, string, textwrap, traceback, typing, urllib.parse, uuid
