//! The built-in nodes that are tasks (protocol section 7).

mod http;
mod template;

use crate::Error;
use plugin_sdk::RunnableNode;
use run_files::RunFiles;

/// The built-in nodes by their types.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<RunnableNode>);

impl Nodes {
    pub(crate) fn new(allow_private: bool, files: &RunFiles) -> Result<Self, Error> {
        Ok(Self(vec![http::node(allow_private, files)?, template::node()]))
    }

    pub(crate) fn get(&self, node_type: &str) -> Option<&RunnableNode> {
        self.0.iter().find(|node| node.node_type() == node_type)
    }
}
