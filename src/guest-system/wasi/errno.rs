use crate::files::FileError;

/// The error numbers of WASI preview 1 that are returned here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Errno {
    BadDescriptor = 8,
    Exists = 20,
    Fault = 21,
    TooLarge = 22,
    IllegalBytes = 25,
    Invalid = 28,
    Io = 29,
    IsFolder = 31,
    TooManyOpen = 33,
    NameTooLong = 37,
    Missing = 44,
    NoSpace = 51,
    NotImplemented = 52,
    NotFolder = 54,
    NotEmpty = 55,
    NotSocket = 57,
    NotSupported = 58,
    Overflow = 61,
    NotPermitted = 63,
    ReadOnly = 69,
    NotSeekable = 70,
    NotCapable = 76,
}

impl From<FileError> for Errno {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Missing => Self::Missing,
            FileError::NotAFolder => Self::NotFolder,
            FileError::IsAFolder => Self::IsFolder,
            FileError::Exists => Self::Exists,
            FileError::NotEmpty => Self::NotEmpty,
            FileError::ReadOnly => Self::ReadOnly,
            FileError::NoSpace => Self::NoSpace,
            FileError::TooLarge => Self::TooLarge,
            FileError::NameTooLong => Self::NameTooLong,
            FileError::BadName => Self::IllegalBytes,
            FileError::BadPath | FileError::IntoItself => Self::Invalid,
        }
    }
}

/// The result of a call for the guest: 0 for success.
pub(super) fn code(answer: Result<(), Errno>) -> u32 {
    match answer {
        Ok(()) => 0,
        Err(errno) => errno as u32,
    }
}
