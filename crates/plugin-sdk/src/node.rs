//! Declaring a node and its function.

use crate::{Context, Failure, Param, Values, input};
use contract::manifest::ExecutorItem;
use futures::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, future::Future, sync::Arc};

/// A node's function with its types erased.
pub(crate) type Work =
    Arc<dyn Fn(Values, Context) -> BoxFuture<'static, Result<Values, Failure>> + Send + Sync>;

/// A node type that is being declared; [`Node::run`] ends the declaration.
///
/// Without any [`Node::input`] the set of inputs is open: every name is accepted.
#[derive(Clone, Debug)]
pub struct Node {
    item: ExecutorItem,
    templates: Vec<String>,
}

impl Node {
    /// A node type and the name that people see. The node type must be unique in the platform:
    /// `plugin.<plugin id>.<name>` is the habit.
    pub fn new(node_type: &str, name: &str) -> Self {
        let item = ExecutorItem {
            node_type: node_type.to_owned(),
            name: name.to_owned(),
            ..ExecutorItem::default()
        };
        Self { item, templates: Vec::new() }
    }

    /// What it does, for people.
    #[must_use]
    pub fn description(mut self, description: &str) -> Self {
        description.clone_into(&mut self.item.description);
        self
    }

    /// Help in Markdown.
    #[must_use]
    pub fn help(mut self, help: &str) -> Self {
        self.item.help = Some(help.to_owned());
        self
    }

    /// Where it stands in the palette.
    #[must_use]
    pub fn section<const N: usize>(mut self, path: [&str; N]) -> Self {
        self.item.section_path = path.map(str::to_owned).into();
        self
    }

    /// Words by which it is found.
    #[must_use]
    pub fn tags<const N: usize>(mut self, tags: [&str; N]) -> Self {
        self.item.tags = tags.map(str::to_owned).into();
        self
    }

    /// A bundle ([`crate::Plugin::asset`]) that the editor shows on the canvas instead of its own widget.
    #[must_use]
    pub fn widget(mut self, asset_key: &str) -> Self {
        self.templates.push(asset_key.to_owned());
        self
    }

    /// Declares an input; the order is that of the editor's form.
    #[must_use]
    pub fn input(mut self, param: Param) -> Self {
        self.item.inputs.get_or_insert_default().push(param.into_declared());
        self
    }

    /// Declares an output.
    #[must_use]
    pub fn output(mut self, param: Param) -> Self {
        self.item.outputs.push(param.into_declared());
        self
    }

    /// The node's function: typed inputs in, typed outputs out. Inputs that do not fit `I` fail the
    /// step and name the field; a panic fails the step.
    pub fn run<I, O, F, R>(self, work: F) -> RunnableNode
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(I, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let Self { item, templates } = self;
        let declared = item.inputs.clone();
        let run: Work = Arc::new(move |values, context| {
            let input = input::prepare(declared.as_deref(), values).and_then(input::read);
            let started = input.map(|input| work(input, context));
            async move { input::write(&started?.await?) }.boxed()
        });
        RunnableNode { item, templates, run }
    }
}

/// A declared node type with its function.
#[derive(Clone)]
pub struct RunnableNode {
    pub(crate) item: ExecutorItem,
    /// Keys of the bundles that it needs on the canvas.
    pub(crate) templates: Vec<String>,
    pub(crate) run: Work,
}

impl RunnableNode {
    /// The node type.
    pub fn node_type(&self) -> &str {
        &self.item.node_type
    }
}

impl fmt::Debug for RunnableNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnableNode").field("node_type", &self.item.node_type).finish_non_exhaustive()
    }
}
