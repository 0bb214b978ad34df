//! Everything wired together.
