//! The embeddings of the memory of plans.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{AtStore, PlanStore, StoreError};

impl PlanStore {
    /// The vectors of a plan that a model made, by the digests of their texts.
    pub async fn vectors(&self, plan: &str, model: &str) -> Result<HashMap<String, Vec<f32>>, StoreError> {
        let rows: Vec<(String, String)> =
            sqlx::query_as("SELECT digest, vector FROM plan_vectors WHERE plan = $1 AND model = $2")
                .bind(plan)
                .bind(model)
                .fetch_all(&self.0.pool)
                .await
                .at(&self.0)?;
        let read = |(digest, text): (String, String)| {
            let vector = numbers_of(&text).ok_or_else(|| self.0.damaged("a vector of a plan is no list of numbers"))?;
            Ok((digest, vector))
        };
        rows.into_iter().map(read).collect()
    }

    /// Stores vectors of a plan by the digests of their texts, each in place of an earlier one of its text.
    /// Errors: [`StoreError`]; some may be stored then.
    pub async fn keep_vectors(
        &self,
        plan: &str,
        model: &str,
        vectors: &[(String, Vec<f32>)],
    ) -> Result<(), StoreError> {
        for (digest, vector) in vectors {
            let sql = "INSERT INTO plan_vectors (plan, digest, model, vector) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (plan, digest) DO UPDATE SET model = excluded.model, vector = excluded.vector";
            bound!(sqlx::query(sql), plan, digest, model, text_of(vector)).execute(&self.0.pool).await.at(&self.0)?;
        }
        Ok(())
    }

    /// Removes the vectors of plans that are removed.
    pub(super) async fn forget_vectors_without_plans(&self) -> Result<(), StoreError> {
        let forgotten = sqlx::query("DELETE FROM plan_vectors WHERE plan NOT IN (SELECT id FROM plans)");
        forgotten.execute(&self.0.pool).await.map(drop).at(&self.0)
    }
}

fn text_of(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

fn numbers_of(text: &str) -> Option<Vec<f32>> {
    let bytes = STANDARD.decode(text).ok()?;
    let (numbers, rest) = bytes.as_chunks::<4>();
    rest.is_empty().then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::test_support::test_store;

    #[tokio::test]
    async fn vectors_are_those_of_their_plan_and_model_and_go_with_the_plan() {
        let store = test_store().await;
        let vector = [1.5, -0.25, f32::MIN_POSITIVE];
        store.plans().keep_vectors("p", "m", &[("a".into(), vector.to_vec()), ("b".into(), vec![2.0])]).await.unwrap();
        store.plans().keep_vectors("p", "n", &[("b".into(), vec![3.0])]).await.unwrap();
        assert_eq!(store.plans().vectors("p", "m").await.unwrap(), HashMap::from([("a".to_owned(), vector.to_vec())]));
        assert_eq!(store.plans().vectors("p", "n").await.unwrap(), HashMap::from([("b".to_owned(), vec![3.0])]));
        assert!(store.plans().vectors("q", "m").await.unwrap().is_empty());
        store.plans().forget_before(store.now()).await.unwrap();
        assert!(store.plans().vectors("p", "m").await.unwrap().is_empty(), "there is no such plan");
    }

    #[test]
    fn what_is_no_list_of_numbers_is_none() {
        assert_eq!(numbers_of(&text_of(&[1.0, 2.0])), Some(vec![1.0, 2.0]));
        assert_eq!((numbers_of("AAAA"), numbers_of("?")), (None, None));
    }
}
