//! The page for people at `http://SWITCH:17777/`: one file that asks `/status` and `/history` by itself.

use axum::http::{HeaderName, header};
use axum::response::Html;

/// The page's path.
pub(super) const PATH: &str = "/";

const PAGE: &str = include_str!("page.html");
/// The text in the page in whose place the nonce goes.
const NONCE: &str = "NONCE";

/// The page. Its own script and style run because they name the nonce of this answer. No other script runs, and nothing
/// is loaded from anywhere else, whatever names the switch has heard.
pub(super) async fn page() -> ([(HeaderName, String); 4], Html<String>) {
    // Without random numbers the nonce can be guessed. But nobody can put a script into the page that would use it.
    let nonce = format!("{:016x}", getrandom::u64().unwrap_or_default());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, Html(PAGE.replace(NONCE, &nonce)))
}
