//! Users and API tokens. Of a token only its SHA-256 is kept.

use crate::{
    db::{Db, in_tx, read, write},
    error::Result,
};
use contract::{Digest, Millis};

/// Users and their tokens.
#[derive(Clone, Debug)]
pub struct Users {
    pub(crate) db: Db,
}

/// A token to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// SHA-256 of the token.
    pub hash: Digest,
    /// Whom it speaks for; created when unknown.
    pub user_id: String,
    /// The workspace it is for.
    pub workspace_id: String,
    /// What people call it.
    pub label: String,
    /// When it was made.
    pub at: Millis,
}

/// Whom a token speaks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// The user.
    pub user_id: String,
    /// The workspace.
    pub workspace_id: String,
}

const ENSURE_USER: &str =
    "INSERT INTO users (user_id, created_at) VALUES ($1, $2) ON CONFLICT (user_id) DO NOTHING";

impl Users {
    /// Creates a user who is not there yet.
    pub async fn ensure_user(&self, user_id: &str, at: Millis) -> Result<()> {
        write!(&self.db, |c| {
            sqlx::query(ENSURE_USER).bind(user_id).bind(at.0).execute(c).await?;
            Ok(())
        })
    }

    /// Stores a token. One that is known already (also a revoked one) is valid afterwards, as given.
    pub async fn put_token(&self, token: &NewToken) -> Result<()> {
        in_tx!(&self.db, |c| {
            sqlx::query(ENSURE_USER).bind(&token.user_id).bind(token.at.0).execute(&mut *c).await?;
            sqlx::query(
                "INSERT INTO tokens (hash, user_id, workspace_id, label, created_at) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (hash) DO UPDATE SET user_id = excluded.user_id, \
                     workspace_id = excluded.workspace_id, label = excluded.label, revoked_at = NULL",
            )
            .bind(token.hash.0.as_slice())
            .bind(&token.user_id)
            .bind(&token.workspace_id)
            .bind(&token.label)
            .bind(token.at.0)
            .execute(&mut *c)
            .await?;
            Ok(())
        })
    }

    /// Whom the token with this SHA-256 speaks for; `None`: unknown or revoked.
    pub async fn find_token(&self, hash: &Digest) -> Result<Option<Principal>> {
        let row: Option<(String, String)> = read!(&self.db, |c| {
            Ok(sqlx::query_as(
                "SELECT user_id, workspace_id FROM tokens WHERE hash = $1 AND revoked_at IS NULL",
            )
            .bind(hash.0.as_slice())
            .fetch_optional(c)
            .await?)
        })?;
        Ok(row.map(|(user_id, workspace_id)| Principal { user_id, workspace_id }))
    }

    /// Ends a token's validity; false: it is unknown or was revoked before.
    pub async fn revoke(&self, hash: &Digest, at: Millis) -> Result<bool> {
        write!(&self.db, |c| {
            let done =
                sqlx::query("UPDATE tokens SET revoked_at = $2 WHERE hash = $1 AND revoked_at IS NULL")
                    .bind(hash.0.as_slice())
                    .bind(at.0)
                    .execute(c)
                    .await?;
            Ok(done.rows_affected() > 0)
        })
    }
}
