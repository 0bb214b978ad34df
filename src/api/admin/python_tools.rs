//! `/admin/python-tools`: the files of Python functions, with their sources, cases and last failures.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::calls::CallBody;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{Page, PageQuery};
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_gateway::{FunctionFile, FunctionFolder, FunctionSource, Gateway};

/// The folder of the files.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FunctionFilesBody {
    #[serde(flatten)]
    page: Page<FunctionFile>,
    /// Deprecated name of `items`, to be dropped in 0.3. All of them where no page is asked for.
    #[schema(deprecated)]
    files: Vec<FunctionFile>,
    /// Names and versions of what they import besides the interpreter's packages.
    packages: Vec<String>,
    /// What is wrong with the folder, or with packages.
    problems: Vec<String>,
}

impl Listed for FunctionFile {
    const NAME: &'static str = "python_tools";
    const ROUTE: &'static str = "/admin/python-tools";
    const COLUMNS: &'static [Column] = &[
        Column::new("file", Form::Line).titled("policies-file"),
        Column::new("tools", Form::Line).titled("nav-tools"),
        Column::new("problems", Form::Line).titled("python-tools-problem"),
    ];

    /// Names and problems as texts, which a spreadsheet can show.
    fn members(&self) -> Value {
        json!({"file": self.name, "tools": self.tools.join(" "), "problems": self.problems.join("\n")})
    }
}

/// All of one file.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FunctionSourceBody<'a> {
    #[serde(flatten)]
    file: FunctionFile,
    /// Absent for a file that cannot be read.
    source: Option<String>,
    /// Those that `sekisho tools test` runs.
    #[schema(value_type = Vec<Object>)]
    cases: Vec<Value>,
    /// Why the cases cannot be read.
    cases_problem: Option<String>,
    /// The calls that failed last, of those that the caller may see; the newest first, at most 20.
    failures: Vec<CallBody<'a>>,
}

/// The files of Python functions, by name. Needs the role `operator` or `admin` of `console`, in the tenant `default`.
#[utoipa::path(get, path = "/admin/python-tools", operation_id = "listPythonTools", tag = "operation", params(PageQuery),
    responses((status = 200, body = FunctionFilesBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let FunctionFolder { files, packages, problems } = gateway.python_functions().files(&meta.caller)?;
    let (page, files) = Page::from_all_with_old_name(files, &query, |file| file.name.clone())?;
    Ok(reply::json(StatusCode::OK, &FunctionFilesBody { page, files, packages, problems }))
}

/// One of these files. Needs the role `operator` or `admin` of `console`, in the tenant `default`.
#[utoipa::path(get, path = "/admin/python-tools/{name}", operation_id = "getPythonTools", tag = "operation",
    params(("name" = String, Path)),
    responses((status = 200, body = FunctionSourceBody<'_>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
) -> Result<Response, ErrorReply> {
    let FunctionSource { file, text, cases, cases_problem, failures } =
        gateway.python_functions().source(&meta.caller, &name).await?;
    let body = FunctionSourceBody {
        file,
        source: text,
        cases,
        cases_problem,
        failures: failures.iter().map(|call| CallBody::of(call)).collect(),
    };
    Ok(reply::json(StatusCode::OK, &body))
}
