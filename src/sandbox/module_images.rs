//! Images of modules: a module is executed once, and each call of its functions goes on from there in a fresh instance.
//! An image is read like the image of a session: the parts in which an instance differs from its profile.
//!
//! ```text
//! read of a file               gateway                                  worker process
//!   | Try --------------------->| Run(job that begins a session) -------->| executes the module; its instance rests
//!   |                           | Read(part of its image) --------------->| the pages that differ
//!   |                           | keeps the image, by all that it is of   |
//! call of a function            |                                         |
//!   | Call -------------------->| ModuleImage(part) … Complete ---------->| the first time, and when it has gone
//!   |                           | Run(job with the image's id) ---------->| a fresh instance with its pages; the function
//! ```
//!
//! A module that read the time of day or random bytes, or that seeded or used random numbers, is not kept: otherwise
//! calls would share values that must be each call's own. Its calls execute it, as if its image had gone.

mod kept;

use std::sync::Arc;

use sha2::{Digest, Sha256};

pub(crate) use self::kept::ModuleImages;

use crate::Sandbox;
use crate::code_mode::ProgramRun;
use crate::sessions::KeptInterpreter;
use crate::worker_handle::{MAX_IMAGE_BYTES, WorkerHandle};
use sekisho_core::call::{CallContext, Deadline};
use sekisho_core::error::CallError;
use sekisho_guest_protocol::{
    End, ImageCursor, Job, JobLimits, ModuleImageId, ModuleTask, Outcome, SessionEntry, Tried,
};

impl Sandbox {
    /// Executes a module to see that it can be, and keeps its image.
    pub(crate) async fn try_module(
        &self,
        call: &CallContext,
        mut job: Job,
        deadline: Deadline,
    ) -> Result<Outcome, CallError> {
        self.choose_profile(&mut job)?;
        let (worker, ticket) = self.place(call, &job, deadline).await?;
        let new = match self.image_id(&job) {
            Some(id) if !self.module_images.find(id).await => Some(id),
            _ => None,
        };
        let begin = || KeptInterpreter::new(Arc::clone(&worker), self.sessions.next_id(), job.profile.clone());
        let kept = new.map(|_| begin());
        job.session = kept.as_ref().map(|kept| kept.entered_by(SessionEntry::Begin));
        let run = ProgramRun::without_journal(None, call);
        let outcome = self.execute(&worker, call, job, ticket, deadline, run).await?;
        if let (Some(kept), Some(id)) = (kept, new)
            && may_be_kept(&outcome)
        {
            self.keep_image(&kept, id).await;
        }
        Ok(outcome)
    }

    async fn keep_image(&self, kept: &KeptInterpreter, id: ModuleImageId) {
        let (mut parts, mut bytes, mut from) = (Vec::new(), 0, Some(ImageCursor::State));
        while let Some(place) = from {
            // Whoever reads it has logged why it cannot be read.
            let Ok((part, next)) = kept.read_part(place).await else { return };
            bytes += part.len() as u64;
            if bytes > MAX_IMAGE_BYTES {
                tracing::info!(
                    max_bytes = MAX_IMAGE_BYTES,
                    "a module is too large to be kept, and is executed in each call"
                );
                return;
            }
            parts.push(part);
            from = next;
        }
        self.module_images.keep(id, parts).await;
    }

    /// The image of a job's module, if there is one.
    pub(crate) fn known_image(&self, job: &Job) -> Option<ModuleImageId> {
        self.image_id(job).filter(|id| self.module_images.has(*id))
    }

    /// Has the worker have the job's image; without it, the job executes its module.
    pub(crate) async fn give_image(&self, worker: &WorkerHandle, job: &mut Job) {
        let Some(id) = job.image.filter(|id| !worker.has_image(*id)) else { return };
        // Calls that come together would each hold all of it.
        let _one_at_a_time = worker.giving_image().await;
        if worker.has_image(id) {
            return;
        }
        match self.module_images.read(id).await {
            Some(parts) => worker.give_image(id, &job.profile, parts),
            None => job.image = None,
        }
    }

    /// Which image a job's module has: by its code, and by all that it can see while it is executed. `None` where its
    /// interpreter has no images.
    fn image_id(&self, job: &Job) -> Option<ModuleImageId> {
        let (file, settings, shared) = match job.module.as_ref()? {
            ModuleTask::Try { file, settings, shared, .. } => (file, settings, shared),
            ModuleTask::Call(call) => (&call.file, &call.settings, &call.shared),
            ModuleTask::Read { .. } => return None,
        };
        let base = self.module_base_of(&job.profile)?;
        let JobLimits { file_bytes, max_files, max_open_files, .. } = job.limits;
        let limits = format!("{file_bytes} {max_files} {max_open_files}");
        let mut hasher = Sha256::new();
        for part in [&base, &limits, file, settings, shared, &job.code] {
            // Lengths separate the parts.
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Some(ModuleImageId(hasher.finalize().into()))
    }
}

/// Whether a module that was tried is the same in each call.
fn may_be_kept(outcome: &Outcome) -> bool {
    let tried = outcome.result.as_deref().and_then(|result| serde_json::from_str::<Tried>(result).ok());
    outcome.end == (End::Exited { code: 0 })
        && outcome.session_bytes.is_some()
        && !outcome.usage.read_time_or_random
        && tried.is_some_and(|tried| tried.is_repeatable)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;
    use crate::worker_handle::tests::{job, load, stand_in};
    use sekisho_config::SandboxConfig;
    use sekisho_observe::metrics::SandboxMetrics;
    use sekisho_observe::readiness::Readiness;

    #[tokio::test]
    async fn an_image_that_another_call_gives_is_not_read_again() {
        let (config, readiness) = (SandboxConfig::default(), Arc::new(Readiness::default()));
        let sandbox = Sandbox::new(&config, SandboxMetrics::for_tests(), readiness).unwrap();
        let worker = WorkerHandle::start(&stand_in(), &load()).await.unwrap();
        // None is on the disk.
        let id = ModuleImageId([0; 32]);
        let mut job = Job { image: Some(id), ..job("") };
        let other_call = worker.giving_image().await;
        {
            let mut giving = pin!(sandbox.give_image(&worker, &mut job));
            assert!(giving.as_mut().now_or_never().is_none());
            worker.give_image(id, "base", vec![vec![1]]);
            drop(other_call);
            giving.await;
        }
        assert_eq!(job.image, Some(id));
        job.image = Some(ModuleImageId([1; 32]));
        sandbox.give_image(&worker, &mut job).await;
        assert_eq!(job.image, None, "without an image the module is executed");
    }
}
