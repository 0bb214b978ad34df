//! `host.call` for a command, which cannot import it: its program is in one file, and its frames are read from
//! another when it has ended. They are the same frames, with the same limits.

use super::{HostCall, Spent};
use sekisho_guest_system::files::{FileError, Files, ROOT};

/// Also in `python/file_channel.py`.
const FOLDER: &str = "/.host_call";
const JOB: &str = "/.host_call/job";
const FRAMES: &str = ".host_call/frames";

/// Writes the program to the file that the command reads.
/// Errors: when the file exists already.
pub(crate) fn place(files: &mut Files, host_call: &HostCall) -> Result<(), FileError> {
    files.place_folder(FOLDER, false)?;
    files.place_file(JOB, host_call.job(0).into(), true).map(drop)
}

/// Handles the command's frames, one per line; nothing if it wrote none.
/// Errors: when a limit is exceeded.
pub(crate) fn handle(files: &Files, host_call: &mut HostCall) -> Result<(), Spent> {
    let Ok(status) = files.find(ROOT, FRAMES).and_then(|id| files.status(id)) else { return Ok(()) };
    // Longer than frames within the limits can be; a hole makes a file of any length.
    let most = host_call.frame_bytes_left;
    if status.length > most {
        return Err(Spent("result_bytes"));
    }
    let mut left = vec![0; usize::try_from(status.length).unwrap_or_default()];
    // A folder of that name contains no frames.
    let Ok(length) = files.read(status.id, 0, &mut left) else { return Ok(()) };
    left.truncate(length);
    for frame in left.split(|byte| *byte == b'\n').filter(|frame| !frame.is_empty()) {
        host_call.count_call()?;
        // The command has ended: the reply is dropped.
        host_call.answer(frame)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_guest_protocol::End;
    use sekisho_guest_system::files::Quota;

    fn heard(frames: &[u8]) -> (Result<(), Spent>, HostCall) {
        let mut files = Files::new(Quota { bytes: 64 << 20, nodes: 4 });
        let mut host_call = HostCall::new("1 + 1".to_owned(), 64, 64, 3);
        place(&mut files, &host_call).unwrap();
        let id = files.create_file(ROOT, FRAMES).unwrap();
        files.write(id, 0, frames).unwrap();
        (handle(&files, &mut host_call), host_call)
    }

    #[test]
    fn the_program_is_in_one_file_and_frames_in_another_are_handled() {
        let mut files = Files::new(Quota { bytes: 0, nodes: 0 });
        place(&mut files, &HostCall::new("1 + 1".to_owned(), 64, 64, 3)).unwrap();
        let mut content = vec![0; 1024];
        let length = files.read(files.find(ROOT, JOB).unwrap(), 0, &mut content).unwrap();
        let job: serde_json::Value = serde_json::from_slice(&content[..length]).unwrap();
        assert_eq!(job["value"], json!({"code": "1 + 1", "result_bytes": 64}));
        let mut silent = HostCall::default();
        handle(&files, &mut silent).unwrap();
        assert_eq!(silent.left.end, None);

        let (handled, host_call) =
            heard(b"{\"v\":1,\"op\":\"done\",\"end\":{\"kind\":\"exited\",\"code\":3},\"result\":\"2\"}\n");
        assert_eq!((handled, host_call.left.end), (Ok(()), Some(End::Exited { code: 3 })));
        assert_eq!(host_call.left.result.as_deref(), Some("2"));
    }

    #[test]
    fn limits_apply_to_frames_in_files_too() {
        let long = format!(
            "{{\"v\":1,\"op\":\"done\",\"end\":{{\"kind\":\"exited\",\"code\":0}},\"result\":\"{}\"}}\n",
            "2".repeat(65)
        );
        assert_eq!(heard(long.as_bytes()).0, Err(Spent("result_bytes")));
        assert_eq!(heard(b"x\ny\nz\nmore\n").0, Err(Spent("host_calls")));
        assert_eq!(heard(&vec![b'x'; 3 << 20]).0, Err(Spent("result_bytes")));
    }
}
