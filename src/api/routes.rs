//! The one literal table of routes: path, method, who may, and what answers. Whatever is not in
//! it does not exist, and nothing in it is open to more people than it says.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};

use super::guard::Guard;
use super::peer::{self, Peer};
use super::problem::{Code, Refusal};
use super::{
    Api, approvals, audit, capability, context, events, execute, executions, health, history,
    metrics, openapi, output, permissions, tools,
};
use crate::config::Access;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Whoever could connect to the socket.
    Connected,
    /// Those that `[access] callers` (or `admins`) lists. A caller sees its own executions only.
    Callers,
    /// Those that `[access] admins` lists.
    Admins,
    /// Those that `[access] approvers` lists.
    Approvers,
    /// Those that `[access] observers` (or `admins`) lists: they see how the daemon does, and run
    /// nothing.
    Observers,
    /// Callers, approvers and admins. A caller sees what it has asked for.
    Involved,
}

/// One row of the table.
pub(super) struct Route {
    pub path: &'static str,
    pub method: Method,
    pub audience: Audience,
    pub handler: fn() -> MethodRouter<Api>,
}

/// All there is.
#[rustfmt::skip]
pub(super) const ROUTES: &[Route] = &[
    Route { path: "/execute",                method: Method::POST,   audience: Audience::Callers,   handler: || post(execute::execute) },
    Route { path: "/tools",                  method: Method::GET,    audience: Audience::Callers,   handler: || get(tools::list) },
    Route { path: "/tools/{name}",           method: Method::GET,    audience: Audience::Callers,   handler: || get(tools::show) },
    Route { path: "/permissions/explain",    method: Method::POST,   audience: Audience::Callers,   handler: || post(permissions::explain) },
    Route { path: "/executions",             method: Method::GET,    audience: Audience::Callers,   handler: || get(history::list) },
    Route { path: "/executions",             method: Method::DELETE, audience: Audience::Admins,    handler: || delete(history::clear) },
    Route { path: "/executions/{id}",        method: Method::GET,    audience: Audience::Callers,   handler: || get(executions::show) },
    Route { path: "/executions/{id}",        method: Method::DELETE, audience: Audience::Callers,   handler: || delete(executions::cancel) },
    Route { path: "/executions/{id}/output", method: Method::GET,    audience: Audience::Callers,   handler: || get(output::show) },
    Route { path: "/executions/{id}/replay", method: Method::POST,   audience: Audience::Callers,   handler: || post(history::replay) },
    Route { path: "/approvals",              method: Method::GET,    audience: Audience::Involved,  handler: || get(approvals::list) },
    Route { path: "/approvals/{id}",         method: Method::GET,    audience: Audience::Involved,  handler: || get(approvals::show) },
    Route { path: "/approvals/{id}",         method: Method::POST,   audience: Audience::Approvers, handler: || post(approvals::decide) },
    Route { path: "/events",                 method: Method::GET,    audience: Audience::Involved,  handler: || get(events::follow) },
    Route { path: "/audit",                  method: Method::GET,    audience: Audience::Admins,    handler: || get(audit::export) },
    Route { path: "/audit/verify",           method: Method::GET,    audience: Audience::Admins,    handler: || get(audit::verify) },
    Route { path: "/context/{scope}",        method: Method::GET,    audience: Audience::Callers,   handler: || get(context::list) },
    Route { path: "/context/{scope}/{name}", method: Method::GET,    audience: Audience::Callers,   handler: || get(context::show) },
    Route { path: "/context/{scope}/{name}", method: Method::PUT,    audience: Audience::Callers,   handler: || put(context::set) },
    Route { path: "/context/{scope}/{name}", method: Method::DELETE, audience: Audience::Callers,   handler: || delete(context::remove) },
    Route { path: "/health",                 method: Method::GET,    audience: Audience::Connected, handler: || get(health::show) },
    Route { path: "/metrics",                method: Method::GET,    audience: Audience::Observers, handler: || get(metrics::show) },
    Route { path: "/openapi.json",           method: Method::GET,    audience: Audience::Connected, handler: || get(openapi::show) },
];

/// The table as a service.
pub(super) fn router(api: Api) -> Router {
    let mut router = Router::new();
    for Route {
        path,
        audience,
        handler,
        ..
    } in ROUTES
    {
        router = router.route(path, handler().route_layer(admit(&api, *audience)));
    }
    router
        .fallback(|request: Request| async move {
            let detail = format!(
                "there is no `{}`; GET /openapi.json tells what there is",
                request.uri().path()
            );
            Refusal::new(Code::NotFound, detail)
        })
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(api)
}

/// What there is for processes of executions: calls, and the values that they share.
const FOR_PROCESSES: [&str; 3] = ["/execute", "/context/{scope}", "/context/{scope}/{name}"];

/// That part of the table, for those who show what they may do (see [`capability`]).
pub(super) fn for_processes(api: Api) -> Router {
    let mut router = Router::new();
    let is_for_them = |route: &&Route| FOR_PROCESSES.contains(&route.path);
    for Route { path, handler, .. } in ROUTES.iter().filter(is_for_them) {
        router = router.route(path, handler().route_layer(show(&api)));
    }
    router
        .fallback(|| async { Refusal::new(Code::NotFound, "there is nothing but calls here") })
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(api)
}

/// Lets a request through that shows a good token. Its body is not read before: what runs in the sandbox is not
/// trusted, and may have no token, but could send as many large ones as the door has connections.
fn show(api: &Api) -> Guard<impl Fn(&Request) -> Option<Response> + Clone + Send + Sync + 'static> {
    let api = api.clone();
    Guard(move |request: &Request| {
        let Some(peer) = request.extensions().get() else {
            return Some(peer::missing().into_response());
        };
        match capability::shown(request.headers(), &api, peer) {
            Ok(Some(_)) => None,
            Ok(None) => Some(capability::not_shown().into_response()),
            Err(refusal) => Some(refusal.into_response()),
        }
    })
}

/// Lets a request through to its handler when its sender belongs to the audience.
fn admit(
    api: &Api,
    audience: Audience,
) -> Guard<impl Fn(&Request) -> Option<Response> + Clone + Send + Sync + 'static> {
    let api = api.clone();
    Guard(move |request: &Request| {
        let admitted = admitted(&api, audience, request.extensions().get());
        admitted.err().map(IntoResponse::into_response)
    })
}

/// Whether `peer` belongs to the audience, as the configuration is now.
pub(crate) fn admitted(api: &Api, audience: Audience, peer: Option<&Peer>) -> Result<(), Refusal> {
    let Some(peer) = peer else {
        return Err(peer::missing());
    };
    let access = &api.edge.settings().access;
    let is_admin = Access::admits(&access.admins, &peer.caller);
    let (admitted, list) = match audience {
        Audience::Connected => (true, ""),
        Audience::Callers => (
            is_admin || Access::admits(&access.callers, &peer.caller),
            "callers",
        ),
        Audience::Admins => (is_admin, "admins"),
        // Who may do anything here may not for that reason allow it.
        Audience::Approvers => (Access::lists(&access.approvers, &peer.caller), "approvers"),
        Audience::Observers => (
            is_admin || Access::admits(&access.observers, &peer.caller),
            "observers",
        ),
        Audience::Involved => (
            is_admin
                || Access::admits(&access.callers, &peer.caller)
                || Access::lists(&access.approvers, &peer.caller),
            "callers",
        ),
    };
    if admitted {
        return Ok(());
    }
    let detail = format!(
        "uid {} is not admitted: an operator adds it (or a group of its) to `{list}` of [access] in executor.toml",
        peer.caller.uid
    );
    Err(Refusal::new(Code::AccessDenied, detail))
}

async fn method_not_allowed(request: Request) -> Response {
    let path = request.uri().path();
    let allowed: Vec<&str> = ROUTES
        .iter()
        .filter(|route| matches(route.path, path))
        .map(|route| match route.method {
            // The router answers HEAD wherever it answers GET.
            Method::GET => "GET, HEAD",
            ref method => method.as_str(),
        })
        .collect();
    let allowed = allowed.join(", ");
    let detail = format!(
        "`{path}` has no method {}: expected {allowed}",
        request.method()
    );
    let allow = HeaderValue::from_str(&allowed).unwrap_or(HeaderValue::from_static(""));
    Refusal::new(Code::MethodNotAllowed, detail)
        .with_header(header::ALLOW, allow)
        .into_response()
}

/// Whether a path fits a pattern of the table, whose `{…}` stand for one segment.
fn matches(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(p), Some(s)) if p == s || (p.starts_with('{') && !s.is_empty()) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the document says there is: method and path of each operation.
    fn documented() -> Vec<(String, String)> {
        let document = openapi::document();
        let mut operations = Vec::new();
        for (path, item) in &document.paths.paths {
            let item = serde_json::to_value(item).expect("JSON");
            for method in item.as_object().expect("operations").keys() {
                operations.push((method.to_uppercase(), path.clone()));
            }
        }
        operations.sort();
        operations
    }

    #[test]
    fn table_and_document_have_the_same_routes() {
        let mut routes: Vec<(String, String)> = ROUTES
            .iter()
            .map(|route| (route.method.to_string(), route.path.to_owned()))
            .collect();
        routes.sort();
        assert_eq!(routes, documented());
    }

    #[test]
    fn what_is_open_to_whoever_connects_is_known_by_name() {
        let open: Vec<&str> = ROUTES
            .iter()
            .filter(|route| route.audience == Audience::Connected)
            .map(|route| route.path)
            .collect();
        assert_eq!(open, ["/health", "/openapi.json"]);
    }

    #[test]
    fn a_pattern_fits_one_segment_each() {
        for (pattern, path, fits) in [
            ("/tools/{name}", "/tools/bash", true),
            ("/tools/{name}", "/tools/", false),
            ("/tools/{name}", "/tools", false),
            ("/tools/{name}", "/tools/a/b", false),
            ("/executions/{id}/output", "/executions/7/output", true),
            ("/tools", "/tools/", false),
        ] {
            assert_eq!(matches(pattern, path), fits, "{pattern} {path}");
        }
    }
}
