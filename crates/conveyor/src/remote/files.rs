//! Values of runs that lie in files of the platform (protocol section 3, *Large outputs*).

use super::Platform;
use crate::failure::Failure;
use contract::{Json, file};
use indexmap::IndexMap;
use std::collections::{HashMap, hash_map::Entry};

impl Platform {
    /// The bytes of a file.
    ///
    /// # Errors
    /// Told: that there is none.
    pub(crate) async fn file(&self, id: &str) -> Result<Vec<u8>, Failure> {
        self.told(self.client.file(id).await)
    }

    /// The value with those that lie in files in their place, at any depth; plain files stay references.
    ///
    /// # Errors
    /// Told: that a file is gone.
    pub(crate) async fn whole(&self, value: &Json) -> Result<Json, Failure> {
        let mut values: HashMap<String, String> = HashMap::new();
        for (_, file) in file::find(value.text()).filter(|(_, file)| file.holds_value()) {
            if let Entry::Vacant(missing) = values.entry(file.id) {
                let bytes = self.file(missing.key()).await?;
                missing.insert(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        let replaced = file::replace(value.text(), |file| values.get(&file.id).cloned());
        // What is no JSON after all stays a reference.
        Ok(replaced.and_then(|text| Json::parse(text).ok()).unwrap_or_else(|| value.clone()))
    }

    /// The same for values by name.
    ///
    /// # Errors
    /// As of [`Platform::whole`].
    pub(crate) async fn all_whole(
        &self,
        values: &IndexMap<String, Json>,
    ) -> Result<IndexMap<String, Json>, Failure> {
        let mut whole = IndexMap::with_capacity(values.len());
        for (name, value) in values {
            whole.insert(name.clone(), self.whole(value).await?);
        }
        Ok(whole)
    }
}
