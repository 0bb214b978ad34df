//! One call: its input, its output, and the report of its end.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::PythonApp;
use crate::app::{TestApp, answer, code, config};

#[tokio::test]
async fn the_last_expression_comes_back_with_its_type() {
    let app = PythonApp::start().await;
    let cases = [
        ("1 + 1", json!(2)),
        ("float('nan')", json!({"$type": "float", "value": "NaN"})),
        ("b'ab'", json!({"$type": "bytes", "base64": "YWI="})),
        ("import datetime as d\nd.datetime(2026, 1, 2, 3)", json!("2026-01-02T03:00:00")),
        ("from decimal import Decimal\nDecimal('1.10')", json!("1.10")),
        (
            "from dataclasses import dataclass\n@dataclass\nclass Point:\n  x: int\nPoint(3)",
            json!({"$type": "dataclass", "name": "Point", "fields": {"x": 3}}),
        ),
        ("import numpy as np\nnp.float64(1.5)", json!(1.5)),
        (
            "import numpy as np\nnp.arange(6).reshape(2, 3)",
            json!({"$type": "ndarray", "shape": [2, 3], "dtype": "int64", "data": [[0, 1, 2], [3, 4, 5]]}),
        ),
        (
            "import pandas as pd\npd.DataFrame({'city': ['Kyoto', None], 'n': [1.5, float('nan')]})",
            json!({
                "$type": "dataframe", "columns": ["city", "n"], "dtypes": ["str", "float64"], "index": [0, 1],
                "rows": [["Kyoto", 1.5], [null, null]], "shape": [2, 2]
            }),
        ),
        (
            "import pandas as pd\npd.Series([1, 2], index=['a', 'b'], name='n')",
            json!({"$type": "series", "name": "n", "dtype": "int64", "index": ["a", "b"], "data": [1, 2], "length": 2}),
        ),
        ("import pandas as pd\npd.Timestamp('2026-01-02', tz='UTC')", json!("2026-01-02T00:00:00+00:00")),
        ("import pandas as pd\n[pd.NaT, pd.NA]", json!([null, null])),
        ("import asyncio\nasync def f():\n  await asyncio.sleep(.01)\n  return 7\nasyncio.run(f())", json!(7)),
    ];
    for (program, expected) in cases {
        assert_eq!(app.run(program).await["result"], expected, "{program}");
    }
}

#[tokio::test]
async fn an_endless_result_is_truncated_and_marked() {
    let app = PythonApp::start().await;
    for program in [
        "import numpy as np\nnp.zeros((2000, 2000))",
        "import pandas as pd\npd.DataFrame({c: range(10**5) for c in 'abcde'})",
        "list(range(10**6))",
        "x = []\nx.append(x)\nx",
    ] {
        let output = app.run(program).await;
        let result = output["result"].to_string();
        assert!(result.contains("\"truncated\":true") && result.len() < 2 << 20, "{program}: {} bytes", result.len());
    }
}

#[tokio::test]
async fn a_program_reads_its_files_and_stdin_and_leaves_files() {
    let app = PythonApp::start().await;
    let program = "import sys, os\n\
                   text = open('/input/data/table.csv').read() + sys.stdin.read()\n\
                   os.mkdir('/output/out')\n\
                   open('/output/out/copy.bin', 'wb').write(open('/input/raw', 'rb').read()[::-1])\n\
                   print('seen', len(text)); print('aside', file=sys.stderr); text";
    let arguments = json!({
        "code": program, "stdin": "!",
        "files": [{"path": "data/table.csv", "text": "a,b\n"}, {"path": "raw", "content_base64": "AAEC"}],
    });
    let output = app.run_with(arguments).await;
    assert_eq!(
        (&output["result"], &output["stdout"], &output["stderr"]),
        (&json!("a,b\n!"), &json!("seen 5\n"), &json!("aside\n"))
    );
    assert_eq!(output["files"], json!([{"path": "out/copy.bin", "content_base64": "AgEA"}]));
    let (_, reply) = app.call(json!({"code": "open('/input/x', 'w')"})).await;
    assert_eq!(code(&reply), "tool_error", "input is read-only: {reply}");
}

#[tokio::test]
async fn figures_left_open_come_back_as_pictures() {
    let app = PythonApp::start().await;
    let output =
        app.run("import matplotlib.pyplot as plt\nfor n in range(2):\n  plt.figure(); plt.plot([n, 2])\nNone").await;
    let images = output["images"].as_array().unwrap();
    assert_eq!(images.len(), 2);
    for image in images {
        let png = BASE64_STANDARD.decode(image["content_base64"].as_str().unwrap()).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 2_000);
    }
}

#[tokio::test]
async fn a_program_works_in_output_where_its_files_are() {
    let app = PythonApp::start().await;
    let program = "import os, glob\n\
                   text = open('sales.csv').read() + open('/input/sales.csv').read()\n\
                   open('result.csv', 'w').write('not closed')\n\
                   f = open('later.csv', 'w'); f.write('not closed')\n\
                   open('changed.csv', 'a').write('+')\n\
                   os.rename('moved.csv', 'renamed.csv')\n\
                   [os.getcwd(), text, sorted(glob.glob('*.csv'))]";
    let files: Vec<_> =
        ["sales.csv", "changed.csv", "moved.csv"].map(|path| json!({"path": path, "text": "a,b\n"})).into();
    let output = app.run_with(json!({"code": program, "files": files})).await;
    let names = ["changed.csv", "later.csv", "renamed.csv", "result.csv", "sales.csv"];
    assert_eq!(output["result"], json!(["/output", "a,b\na,b\n", names]));
    let content = |text: &str| BASE64_STANDARD.encode(text);
    let returned = json!([
        {"path": "changed.csv", "content_base64": content("a,b\n+")},
        {"path": "later.csv", "content_base64": content("not closed")},
        {"path": "result.csv", "content_base64": content("not closed")},
    ]);
    assert_eq!(output["files"], returned, "what was sent comes back only where it was changed");
}

#[tokio::test]
async fn the_sessions_workspace_is_there() {
    // Ends the settings of this tool, and begins those of another.
    let app = PythonApp::with("}, file_write: {roles: [], dangerous: false", "").await;
    let session = |code: &str| json!({"arguments": {"code": code}, "session_id": "monday"});
    let write = app.app.post("/tools/file_write/execute").json(&json!({
        "arguments": {"path": "data/kept.csv", "content": "a,b"}, "session_id": "monday"
    }));
    assert_eq!(write.send().await.unwrap().json::<Value>().await.unwrap()["success"], true);
    let read = "open('data/kept.csv').read() + open('/input/data/kept.csv').read()";
    let request = app.app.post("/tools/python_executor/execute").json(&session(read));
    let reply: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!((&reply["output"]["result"], &reply["output"]["files"]), (&json!("a,ba,b"), &json!([])), "{reply}");
    let (_, without) = app.call(json!({"code": read})).await;
    assert_eq!(code(&without), "tool_error");
}

/// Two noisy pictures have more bytes than a result may have, and many are more than all pictures may have.
#[tokio::test]
async fn pictures_have_a_limit_of_their_own_and_cost_no_result() {
    let draw = "import numpy as np, matplotlib.pyplot as plt\n\
                for n in range(COUNT):\n  plt.figure(figsize=(8, 6)); plt.imshow(np.random.rand(400, 400, 3))\n'kept'";
    let app = PythonApp::start().await;
    let output = app.run(&draw.replace("COUNT", "3")).await;
    assert_eq!((output["images"].as_array().unwrap().len(), &output["result"]), (3, &json!("kept")));
    drop(app);
    let narrow = PythonApp::with("", "max_image_bytes: 1500000").await;
    let output = narrow.run(&draw.replace("COUNT", "3")).await;
    let kept = output["images"].as_array().unwrap().len();
    assert!((1..3).contains(&kept) && output["result"] == "kept", "{kept} pictures");
    assert!(output["stderr"].as_str().unwrap().contains("figure 3 was left out: the pictures"), "{output}");
    let forged = "import _host\n_host.call(b'{\"v\": 1, \"id\": 0, \"op\": \"image\", \"png\": \"UE5H\"}').decode()";
    let output = narrow.run(forged).await;
    assert!(output["result"].as_str().unwrap().contains("not a PNG") && output["images"] == json!([]), "{output}");
}

#[tokio::test]
async fn errors_say_what_is_different_here() {
    let app = PythonApp::start().await;
    let cases = [
        ("import polars", "nothing can be installed here; these packages are there: "),
        ("from urllib.request import urlopen\nurlopen('https://example.com')", "there is no network"),
        ("import ssl", "there is no network"),
        ("import requests\nrequests.get('http://example.com')", "there is no network"),
        ("import socket\nsocket.create_connection(('example.com', 80))", "there is no network"),
        ("import subprocess\nsubprocess.run(['pip', 'install', 'polars'])", "no other programs can be started"),
        ("import os\nos.system('ls')", "no other programs can be started"),
        ("import threading\nthreading.Thread(target=print).start()", "there are no threads here"),
        ("open('/x.csv', 'w')", "write to the working directory, /output"),
        ("open('sale.csv')", "the working directory has: sales.csv"),
        ("from PIL import Image\nImage.new('RGB', (2, 2)).save('x.jpg')", "use PNG"),
        ("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('x.jpg')", "use PNG"),
        ("from PIL import Image\nImage.new('RGB', (2, 2)).save('x.webp')", "use PNG"),
    ];
    for (program, words) in cases {
        let files = json!([{"path": "sales.csv", "text": ""}]);
        let (_, reply) = app.call(json!({"code": program, "files": files})).await;
        let error = reply["error"].as_str().unwrap_or_default();
        assert!(code(&reply) == "tool_error" && error.contains(words), "{program}: {reply}");
        assert!(!error.contains("Site initialization"), "{error}");
    }
    let (_, reply) = app.call(json!({"code": "import polars"})).await;
    let detail = reply["error_info"]["details"][0]["message"].as_str().unwrap();
    for package in ["bs4", "numpy", "openpyxl", "plotly", "pptx", "pytz", "requests", "sklearn"] {
        assert!(detail.contains(&format!(" {package},")), "{package}: {detail}");
    }
}

#[tokio::test]
async fn added_packages_and_fonts_work() {
    let app = PythonApp::start().await;
    let cases = [
        (
            "import pytz, datetime\nstr(pytz.timezone('Asia/Tokyo').utcoffset(datetime.datetime(2024, 1, 1)))",
            json!("9:00:00"),
        ),
        ("import markdown\nmarkdown.markdown('# a')", json!("<h1>a</h1>")),
        (
            "import plotly.express as px\npx.bar(x=[1, 2], y=[3, 4]).write_html('chart.html', include_plotlyjs=False)\nlen(px.bar(x=[1], y=[2]).data)",
            json!(1),
        ),
        (
            "from pptx import Presentation\np = Presentation()\np.slides.add_slide(p.slide_layouts[0]).shapes.title.text = 'x'\np.save('a.pptx')\nlen(Presentation('a.pptx').slides)",
            json!(1),
        ),
        ("import requests\nrequests.models.Response().status_code is None", json!(true)),
    ];
    for (program, expected) in cases {
        assert_eq!(app.run(program).await["result"], expected, "{program}");
    }
    let plots = [
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.title('売上 销售额 매출 Ventes')\nNone",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2], label='東京'); plt.legend(title='凡例'); plt.suptitle('제목')\nplt.show()",
        "import matplotlib.pyplot as plt\nplt.pie([1, 2], labels=['北京', '上海']); plt.annotate('注', (0, 0)); plt.text(0, 0, '文')\nNone",
        "import pandas as pd\npd.DataFrame({'値': [1, 2]}).plot(title='図')\nNone",
    ];
    for plot in plots {
        let output = app.run(plot).await;
        let images = output["images"].as_array().unwrap().len();
        assert_eq!((&output["stderr"], images), (&json!(""), 1), "{plot}: no glyph is missing, and nothing warns");
    }
}

#[tokio::test]
async fn tracebacks_show_only_the_callers_lines() {
    let app = PythonApp::start().await;
    let cases = [
        ("x = 1\nif x\n  pass", "SyntaxError", "line 2, column 5"),
        ("def f(x):\n    return 1 / x\nf(0)", "ZeroDivisionError", "line 2, column 12"),
        ("import pandas as pd\npd.DataFrame({'a': [1]})['b']", "KeyError", "line 2, column 1"),
        ("import json\njson.loads('{')", "JSONDecodeError", "line 2, column 1"),
    ];
    for (program, kind, place) in cases {
        let (status, reply) = app.call(json!({"code": program})).await;
        assert_eq!((status, code(&reply), &reply["success"]), (StatusCode::OK, "tool_error", &json!(false)), "{reply}");
        let detail = &reply["error_info"]["details"][0];
        assert_eq!((&detail["path"], &detail["rule"]), (&json!("/code"), &json!(kind)), "{reply}");
        assert!(detail["message"].as_str().unwrap().starts_with(place), "{detail}");
        let reported = reply["error"].as_str().unwrap();
        assert!(
            reported.contains("<code>") && !reported.contains("_sekisho") && !reported.contains("<turn"),
            "{reported}"
        );
    }
}

#[tokio::test]
async fn an_exit_code_is_an_answer() {
    let app = PythonApp::start().await;
    for (program, expected) in [("import sys; sys.exit(3)", 3), ("exit()", 0), ("import os; os._exit(4)", 4)] {
        let output = app.run(program).await;
        assert_eq!(output["exit_code"], expected, "{program}: {output}");
    }
}

/// Each limit is the host's, has its own code, and reports the usage and the output so far.
#[tokio::test]
async fn limits_have_their_own_codes_and_keep_what_was_produced() {
    let app = PythonApp::with("memory_limit_mb: 128", "max_stream_bytes: 1000, max_file_bytes: 1048576").await;
    let cases = [
        ("print('before')\nwhile True: pass", 504, "sandbox_timeout"),
        ("print('before', flush=True)\nx = bytearray(1 << 30)", 200, "sandbox_memory"),
        ("print('before', flush=True)\nimport os\nwhile True: os.urandom(1 << 16)", 200, "sandbox_output"),
        ("print('before')\nimport sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", 200, "sandbox_trap"),
    ];
    for (program, status, expected) in cases {
        let (answered, reply) = app.call(json!({"code": program, "timeout_seconds": 2})).await;
        assert_eq!((answered.as_u16(), code(&reply)), (status, expected), "{program}: {reply}");
        assert_eq!(reply["output"]["stdout"], "before\n", "{program}");
        let usage = &reply["output"]["usage"];
        assert!(usage["peak_memory_bytes"].as_u64().unwrap() <= 128 << 20, "{usage}");
        assert!(usage["wall_ms"].as_f64().unwrap() < 2_500.0 && usage["output_bytes"] == 7, "{usage}");
    }
    let output = app.run("print('x' * 5000, end='')").await;
    assert!(output["stdout"].as_str().unwrap().ends_with("(1000 of 5000 bytes)"));
    let (_, reply) = app.call(json!({"code": "open('/output/large', 'wb').write(b'x' * (2 << 20))"})).await;
    assert!(reply["error"].as_str().unwrap().contains("OSError"), "{reply}");
}

/// Fault 6: a tool's memory limit that is a label only.
#[tokio::test]
async fn the_tools_memory_limit_is_the_runs() {
    let program = "x = bytearray(150 << 20)\nlen(x)";
    let roomy = PythonApp::with("memory_limit_mb: 300", "").await;
    assert_eq!(roomy.run(program).await["result"], 150 << 20);
    drop(roomy);
    let narrow = PythonApp::with("memory_limit_mb: 100", "").await;
    assert_eq!(code(&narrow.call(json!({"code": program})).await.1), "sandbox_memory");
}

#[tokio::test]
async fn profiles_differ_in_what_is_imported_and_not_in_what_can_be() {
    let app = PythonApp::start().await;
    for profile in ["base", "data", "plot", "science"] {
        let code = "import sys\nbefore = 'pandas' in sys.modules\nimport pandas\n[before, pandas.Series([1]).sum()]";
        let output = app.run_with(json!({"code": code, "profile": profile})).await;
        assert_eq!(output["result"], json!([profile != "base", 1]), "{profile}");
    }
    let (status, reply) = app.call(json!({"code": "1", "profile": "none"})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_arguments"));
}

#[tokio::test]
async fn the_operators_data_files_are_in_input() {
    let directory = tempfile::TempDir::new().unwrap();
    let rates = directory.path().join("rates.csv");
    std::fs::write(&rates, "usd,eur\n1,0.9\n").unwrap();
    let app = PythonApp::with("", &format!("data_files: ['{}']", rates.display())).await;
    let program = "import os\n[open('/input/rates.csv').read(), sorted(os.listdir('/input'))]";
    let output = app.run_with(json!({"code": program, "files": [{"path": "mine", "text": ""}]})).await;
    assert_eq!(output["result"], json!(["usd,eur\n1,0.9\n", ["mine", "rates.csv"]]));
    let (_, reply) = app.call(json!({"code": "open('/input/rates.csv', 'a')"})).await;
    assert_eq!(code(&reply), "tool_error");
}

/// While there is nothing to run programs with, everything else works.
#[tokio::test]
async fn without_workers_the_answer_is_to_come_again() {
    let directory = tempfile::TempDir::new().unwrap();
    let mut config = config(&directory, "");
    config.sandbox.program = Some("/bin/false".into());
    let app = Box::pin(TestApp::with_config(directory, config)).await;
    let request = app.post("/tools/python_executor/execute").json(&json!({"arguments": {"code": "1"}}));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    let reply: Value = response.json().await.unwrap();
    assert_eq!((code(&reply), &reply["error_info"]["retryable"]), ("warming_up", &json!(true)));
    let (_, ready) = answer(app.get("/readyz")).await;
    assert!(ready["degraded"]["sandbox"].is_string(), "{ready}");
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::OK);
}

/// The working directory has the name that it has in other sandboxes, too.
#[tokio::test]
async fn files_of_mnt_data_are_those_of_the_working_directory() {
    let app = PythonApp::start().await;
    let program = "import pandas as pd\ntable = pd.read_csv('/mnt/data/table.csv')\n\
                   table.to_csv('/mnt/data/copy.csv', index=False)\n[len(table), open('copy.csv').read()]";
    let output = app.run_with(json!({"code": program, "files": [{"path": "table.csv", "text": "a\n1\n"}]})).await;
    assert_eq!(
        (&output["result"], &output["files"][0]["path"]),
        (&json!([1, "a\n1\n"]), &json!("copy.csv")),
        "{output}"
    );
}
