"""Prints the calls of AgentDojo's ground truths (PyPI `agentdojo`, MIT) as JSON: for each task its calls,
[tool, arguments] each."""
import json
import warnings

import yaml

if hasattr(yaml, "CSafeLoader"):
    # The package reads each environment anew, which takes a second with the loader in Python.
    yaml.SafeLoader = yaml.CSafeLoader

from agentdojo.task_suite import get_suites  # noqa: E402

warnings.simplefilter("ignore")
tasks = []
for suite in get_suites("v1.2.2").values():
    environment = suite.load_and_inject_default_environment({})
    for task in suite.user_tasks.values():
        tasks.append([[call.function, dict(call.args)] for call in task.ground_truth(environment)])
print(json.dumps(tasks))
