//! The door of a command, which has no `host.call` to import: its program stands in a file, and the frames
//! that it leaves in another are read when it is over. They are the same frames, with the same limits.

use super::{HostCall, Spent};
use crate::sandbox::files::{FileError, Files, ROOT};

/// `python/file_door.py` knows these names.
const FOLDER: &str = "/.door";
const JOB: &str = "/.door/job";
const FRAMES: &str = ".door/frames";

/// Puts the program where the command will look for it.
///
/// # Errors
/// When something stands there already.
pub(in crate::sandbox) fn place(files: &mut Files, door: &HostCall) -> Result<(), FileError> {
    files.place_folder(FOLDER, false)?;
    files.place_file(JOB, door.job(&serde_json::Value::Null).into()).map(drop)
}

/// Hears what the command left, one frame a line; nothing, where it left nothing.
///
/// # Errors
/// When a limit is spent.
pub(in crate::sandbox) fn handle(files: &Files, door: &mut HostCall) -> Result<(), Spent> {
    let Ok(status) = files.find(ROOT, FRAMES).and_then(|id| files.status(id)) else { return Ok(()) };
    // Longer than frames within the limits can be; a hole makes a file of any length.
    let most = door.frame_bytes();
    if status.length > most {
        return Err(Spent("result_bytes"));
    }
    let mut left = vec![0; usize::try_from(status.length).unwrap_or_default()];
    // A folder of that name holds no frames.
    let Ok(length) = files.read(status.id, 0, &mut left) else { return Ok(()) };
    left.truncate(length);
    for frame in left.split(|byte| *byte == b'\n').filter(|frame| !frame.is_empty()) {
        door.count_call()?;
        // Nobody is left to hear what is answered.
        door.answer(frame)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sandbox::files::Quota;
    use crate::sandbox::protocol::End;

    fn heard(frames: &[u8]) -> (Result<(), Spent>, HostCall) {
        let mut files = Files::new(Quota { bytes: 64 << 20, nodes: 4 });
        let mut door = HostCall::new("1 + 1".to_owned(), 64, 3);
        place(&mut files, &door).unwrap();
        let id = files.create_file(ROOT, FRAMES).unwrap();
        files.write(id, 0, frames).unwrap();
        (handle(&files, &mut door), door)
    }

    #[test]
    fn the_program_stands_in_a_file_and_what_is_left_in_another_is_heard() {
        let mut files = Files::new(Quota { bytes: 0, nodes: 0 });
        place(&mut files, &HostCall::new("1 + 1".to_owned(), 64, 3)).unwrap();
        let mut content = vec![0; 1024];
        let length = files.read(files.find(ROOT, JOB).unwrap(), 0, &mut content).unwrap();
        let job: serde_json::Value = serde_json::from_slice(&content[..length]).unwrap();
        assert_eq!(job["value"], json!({"code": "1 + 1", "result_bytes": 64}));
        let mut silent = HostCall::default();
        handle(&files, &mut silent).unwrap();
        assert_eq!(silent.left.end, None);

        let (heard, door) =
            heard(b"{\"v\":1,\"op\":\"done\",\"end\":{\"kind\":\"exited\",\"code\":3},\"result\":\"2\"}\n");
        assert_eq!((heard, door.left.end), (Ok(()), Some(End::Exited { code: 3 })));
        assert_eq!(door.left.result.as_deref(), Some("2"));
    }

    #[test]
    fn limits_hold_for_what_is_left_in_files_too() {
        let long = format!(
            "{{\"v\":1,\"op\":\"done\",\"end\":{{\"kind\":\"exited\",\"code\":0}},\"result\":\"{}\"}}\n",
            "2".repeat(65)
        );
        assert_eq!(heard(long.as_bytes()).0, Err(Spent("result_bytes")));
        assert_eq!(heard(b"x\ny\nz\nmore\n").0, Err(Spent("host_calls")));
        assert_eq!(heard(&vec![b'x'; 2 << 20]).0, Err(Spent("result_bytes")));
    }
}
