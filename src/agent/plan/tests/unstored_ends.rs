//! Plans whose end the store did not take.

use super::*;

/// A plan whose run gave it back without an end.
async fn left_running(
    service: &Arc<AgentService>,
    folder: &tempfile::TempDir,
    script: &Value,
) -> (Arc<Caller>, Arc<str>) {
    let request = request(service, folder, script);
    let caller = Arc::clone(&request.caller);
    let new = NewPlan { request, planner: of(PlanPreset::Steps), approve: true };
    let id = service.start_plan(new).await.unwrap().id;
    until("the plan waits", async || service.plan(&caller, &id).await.unwrap().status != PlanStatus::Running).await;
    let store = service.gateway().store();
    let found = store.plans().get(&caller.key, &id).await.unwrap().unwrap();
    let approved = found.state.replace("\"awaits_approval\":true", "\"awaits_approval\":false");
    let lease = store.plans().resume(&found, &approved, None, store.now()).await.unwrap().unwrap();
    assert_eq!(service.plan(&caller, &id).await.unwrap().status, PlanStatus::Running);
    store.plans().give_up(&lease).await.unwrap();
    (caller, id)
}

#[tokio::test]
async fn a_plan_that_nothing_runs_any_more_is_continued_or_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(&folder).await;
    let script = json!({"planner": [plan_of(&["a"])], "attempts": [text(LONG)], "answer": text("done")});
    let (caller, id) = left_running(&service, &folder, &script).await;
    until("its run has ended", async || service.plan(&caller, &id).await.unwrap().status == PlanStatus::Paused).await;
    let listed = service.plans_of(&caller, jiff::Timestamp::MAX, 10).await.unwrap();
    assert_eq!(listed[0].status, PlanStatus::Paused);
    assert_eq!(service.pause_plan(&caller, &id).await.unwrap_err().code(), ErrorCode::InvalidRequest);
    service.continue_plan(&id, request(&service, &folder, &script), false).await.unwrap();
    until("it ends", async || service.plan(&caller, &id).await.unwrap().status == PlanStatus::Finished).await;

    let (caller, id) = left_running(&service, &folder, &script).await;
    until("its run has ended", async || service.plan(&caller, &id).await.unwrap().status == PlanStatus::Paused).await;
    assert_eq!(service.cancel_plan(&caller, &id).await.unwrap().status, PlanStatus::Cancelled);
}
