use super::*;

const LIMIT: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Program {
    Program::new("/bin/sh").args(["-c", script])
}

#[tokio::test]
async fn lines_of_both_streams_are_kept_and_written_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let process =
        shell("echo out; echo err >&2; echo $GREETING").env("GREETING", "grüße").log_file(&log).spawn();
    let process = process.unwrap();

    process.wait_for_line("err", LIMIT).await.unwrap();
    assert_eq!(process.wait_for_line("gr", LIMIT).await.unwrap(), "grüße");
    assert!(process.wait(LIMIT).await.unwrap().success());

    assert_eq!(process.text(Stream::Stdout), "out\ngrüße\n");
    assert_eq!(process.text(Stream::Stderr), "err\n");
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 3);
}

#[tokio::test]
async fn a_process_that_ends_without_the_line_is_an_error_with_its_output() {
    let process = shell("echo cannot bind; exit 3").spawn().unwrap();
    let error = process.wait_for_line("ready", LIMIT).await.unwrap_err().to_string();
    assert!(error.contains("exit status: 3") && error.contains("cannot bind"), "{error}");
}

#[tokio::test]
async fn stop_lets_the_process_end_by_itself_and_kill_does_not() {
    let script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let polite = shell(script).spawn().unwrap();
    polite.wait_for_line("ready", LIMIT).await.unwrap();
    assert_eq!(polite.stop(LIMIT).await.unwrap().code(), Some(7));

    let killed = shell(script).spawn().unwrap();
    killed.wait_for_line("ready", LIMIT).await.unwrap();
    assert_eq!(killed.kill().await.unwrap().code(), None);
}

#[tokio::test]
async fn a_drop_ends_the_process_and_its_descendants() {
    let process = shell("(sleep 1000 & echo child $!; wait) & wait").spawn().unwrap();
    let line = process.wait_for_line("child", LIMIT).await.unwrap();
    let grandchild: u32 = line.trim_start_matches("child ").parse().unwrap();
    let handles = [process.pid(), grandchild].map(|pid| Handle::open(pid).unwrap());

    drop(process);

    assert!(handles.iter().all(|handle| handle.wait_blocking(Duration::ZERO)));
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let error = Program::new("/nonexistent/program").spawn().unwrap_err();
    assert!(error.to_string().contains("cannot start program"), "{error}");
}
