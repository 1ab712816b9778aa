//! What of a plugin people see in the web UI: bundles, and the forms and widgets that they hold.

use crate::node::RunnableNode;
use contract::{Fault, manifest::StaticAsset};
use hyper::body::Bytes;
use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// A form of a plugin, which starts a process or shows its runs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    id: String,
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    asset_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<String>,
}

impl Form {
    /// A form with its id in the plugin, the name that people see, and the key of its bundle
    /// ([`crate::Plugin::asset`]).
    pub fn new(id: &str, label: &str, asset_key: &str) -> Self {
        Self {
            id: id.to_owned(),
            label: label.to_owned(),
            description: None,
            asset_key: asset_key.to_owned(),
            icon: None,
        }
    }

    /// What it is for, for people.
    #[must_use]
    pub fn description(mut self, description: &str) -> Self {
        self.description = Some(description.to_owned());
        self
    }

    /// Its icon, such as `i-lucide-upload`.
    #[must_use]
    pub fn icon(mut self, icon: &str) -> Self {
        self.icon = Some(icon.to_owned());
        self
    }
}

/// A bundle: its media type and bytes.
#[derive(Clone, Debug)]
pub(crate) struct Asset {
    pub(crate) media_type: String,
    pub(crate) bytes: Bytes,
}

/// The UI of a plugin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ui {
    pub(crate) assets: IndexMap<String, Asset>,
    pub(crate) forms: Vec<Form>,
}

impl Ui {
    /// Assets as the manifest names them, served below `base`.
    pub(crate) fn static_assets(&self, base: &str) -> Vec<StaticAsset> {
        let named = |(key, asset): (&String, &Asset)| StaticAsset {
            key: key.clone(),
            url: format!("{base}{}", path_of(key)),
            media_type: asset.media_type.clone(),
            extra: Map::new(),
        };
        self.assets.iter().map(named).collect()
    }

    /// The manifest's `ui`; `None` without forms.
    pub(crate) fn manifest(&self) -> Option<Value> {
        (!self.forms.is_empty()).then(|| json!({ "forms": self.forms }))
    }

    /// Bundles that forms and widgets need and that are not there.
    pub(crate) fn faults(&self, nodes: &[RunnableNode]) -> Vec<Fault> {
        let forms = self.forms.iter().enumerate();
        let forms = forms.map(|(place, form)| (format!("$.ui.forms[{place}].assetKey"), &form.asset_key));
        let widgets = nodes.iter().enumerate().flat_map(|(node, declared)| {
            let keys = declared.templates.iter().enumerate();
            keys.map(move |(place, key)| (format!("$.executors[{node}].requiredTemplateKeys[{place}]"), key))
        });
        let missing = forms.chain(widgets).filter(|(_, key)| !self.assets.contains_key(*key));
        missing
            .map(|(path, key)| Fault {
                path,
                code: "unknown_asset".to_owned(),
                message: format!("the plugin has no asset {key:?}; add it with Plugin::asset"),
            })
            .collect()
    }
}

/// Where an asset is served.
pub(crate) fn path_of(key: &str) -> String {
    let mut path = "/assets/".to_owned();
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}
