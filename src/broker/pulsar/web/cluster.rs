//! Lookups, clusters, tenants and namespaces. There is one cluster, and a namespace exists as soon
//! as it may have topics.

use std::collections::BTreeSet;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::topics::no_topic;
use super::{Refusal, Reply};
use crate::http::message::{Answer, Request};
use crate::pulsar::Broker;
use crate::pulsar::names::Name;
use forebay_base::error::ErrorKind;

/// Name of the only cluster, as that of a standalone broker.
pub(super) const CLUSTER: &str = "standalone";

impl Broker {
    /// URLs of the service as the real broker names them: the first two are those of the protocol.
    fn urls(&self, names: [&str; 4]) -> Value {
        let mut urls = json!({});
        for (of, names, tls) in [
            (&self.settings.urls, [names[0], names[1]], "pulsar+ssl:"),
            (&self.settings.web_urls, [names[2], names[3]], "https:"),
        ] {
            // The first one of each kind stays.
            for url in of.iter().rev() {
                urls[names[usize::from(url.starts_with(tls))]] = url.as_str().into();
            }
        }
        urls
    }

    /// The broker of a topic.
    pub(super) fn look_up(&self, name: &Name) -> Reply {
        self.check_namespace(name)?;
        let mut urls = self.urls(["brokerUrl", "brokerUrlTls", "httpUrl", "httpUrlTls"]);
        // The C++ client wants both, also those that are empty.
        for (old, new) in [("nativeUrl", "brokerUrl"), ("brokerUrlSsl", "brokerUrlTls")] {
            urls[old] = urls.get(new).cloned().unwrap_or_else(|| "".into());
        }
        if urls.get("brokerUrl").is_none() {
            urls["brokerUrl"] = "".into();
        }
        Ok(Answer::json(&urls))
    }

    pub(super) fn clusters(&self, path: &[&str]) -> Reply {
        match path {
            [] => Ok(Answer::json(&json!([CLUSTER]))),
            [CLUSTER] => Ok(Answer::json(&self.urls([
                "brokerServiceUrl",
                "brokerServiceUrlTls",
                "serviceUrl",
                "serviceUrlTls",
            ]))),
            [_] => Err(Refusal::not_found("Cluster does not exist")),
            _ => Ok(Answer::not_found()),
        }
    }

    /// Namespaces that are configured or have topics, and that of topics without one.
    pub(super) fn all_namespaces(&self) -> BTreeSet<String> {
        let configured = self.settings.namespaces.iter().filter(|name| *name != "*").cloned();
        let names = self.names.keys().chain(self.parents.keys());
        let used = names.filter_map(|name| Some(name.split_once("://")?.1.rsplit_once('/')?.0.to_owned()));
        configured.chain(used).chain(["public/default".to_owned()]).collect()
    }

    pub(super) fn tenants(&self, path: &[&str]) -> Reply {
        let all = self.all_namespaces();
        let tenants: BTreeSet<&str> = all.iter().filter_map(|name| Some(name.split_once('/')?.0)).collect();
        match path {
            [] => Ok(Answer::json(&json!(tenants))),
            [tenant] if tenants.contains(tenant) => {
                Ok(Answer::json(&json!({"adminRoles": [], "allowedClusters": [CLUSTER]})))
            }
            [_] => Err(Refusal::not_found("Tenant does not exist")),
            _ => Ok(Answer::not_found()),
        }
    }

    pub(super) fn namespaces(&self, path: &[&str], request: &Request) -> Reply {
        let all = self.all_namespaces();
        match path {
            [tenant] => {
                let prefix = format!("{tenant}/");
                let of_tenant: Vec<&String> = all.iter().filter(|name| name.starts_with(&prefix)).collect();
                if of_tenant.is_empty() {
                    return Err(Refusal::not_found("Tenant not found"));
                }
                Ok(Answer::json(&json!(of_tenant)))
            }
            [tenant, namespace, rest @ ..] => {
                let name = format!("{tenant}/{namespace}");
                if !all.contains(&name) {
                    return Err(Refusal::not_found("Namespace does not exist"));
                }
                match rest {
                    [] => {
                        let strategy = format!("{:?}", self.settings.schema_compatibility);
                        Ok(Answer::json(&json!({
                            "replication_clusters": [CLUSTER],
                            "deduplicationEnabled": self.settings.deduplicate,
                            "schema_compatibility_strategy": capitals(&strategy),
                        })))
                    }
                    ["topics"] => self.topics_of(&name, request),
                    _ => Ok(Answer::not_found()),
                }
            }
            [] => Ok(Answer::not_found()),
        }
    }

    /// Topics and partitions of a namespace. With both domains, persistent ones come first.
    fn topics_of(&self, namespace: &str, request: &Request) -> Reply {
        let domains: &[&str] = match request.query("mode").unwrap_or("PERSISTENT") {
            "PERSISTENT" => &["persistent"],
            "NON_PERSISTENT" => &["non-persistent"],
            "ALL" => &["persistent", "non-persistent"],
            other => {
                let text = format!("mode {other:?} is not one of PERSISTENT, NON_PERSISTENT, ALL");
                return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
            }
        };
        let user = request.user.as_deref();
        let topics = domains.iter().flat_map(|domain| self.names_in(domain, namespace));
        let topics = topics.filter(|topic| self.may_list(user, topic));
        Ok(Answer::json(&json!(topics.collect::<Vec<_>>())))
    }

    /// Topics without partitions, and partitions, in a namespace.
    pub(super) fn names_in(&self, domain: &str, namespace: &str) -> impl Iterator<Item = &str> + use<'_> {
        let prefix = format!("{domain}://{namespace}/");
        self.names.keys().map(|name| &**name).filter(move |name| name.starts_with(&prefix))
    }

    /// The number of a topic's partitions.
    pub(super) fn partitions_of(&mut self, name: &Name, request: &Request) -> Reply {
        let create = request.flag("checkAllowAutoCreation");
        self.check_namespace(name)?;
        let partitions = self.try_partitions(&name.full, create).map_err(|error| match error.kind() {
            ErrorKind::TopicNotFound => no_topic(name),
            _ => error.into(),
        })?;
        Ok(Answer::json(&json!({"partitions": partitions, "deleted": false})))
    }
}

/// `FULL_TRANSITIVE` of `FullTransitive`.
pub(super) fn capitals(name: &str) -> String {
    let mut capitals = String::new();
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_ascii_uppercase() {
            capitals.push('_');
        }
        capitals.push(letter.to_ascii_uppercase());
    }
    capitals
}
