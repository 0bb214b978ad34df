;; What hostile commands have in common. A folder with the file a.txt is descriptor 3, and all of it can only be read.
(module
  ;; IMPORTS
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_allocate" (func $allocate (param i32 i64 i64) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $list (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open" (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $make_folder (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename" (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink" (func $link (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 4)
  (data (i32.const 1024) "/etc/passwd")
  (data (i32.const 1040) "../../etc/passwd")
  (data (i32.const 1056) "new")
  (data (i32.const 1064) "a.txt")
  (data (i32.const 1072) "a\00b")
  (data (i32.const 1080) "\ff")
  (data (i32.const 2048) "true")
  ;; At 0 a buffer, from 4 096 on.
  (func $buffer (param $length i32)
    (i32.store (i32.const 0) (i32.const 4096))
    (i32.store (i32.const 4) (local.get $length)))
  (func $print (param $descriptor i32) (result i32)
    (call $write (local.get $descriptor) (i32.const 0) (i32.const 1) (i32.const 8)))
  ;; The result is `true`.
  (func $worked
    (i32.store (i32.const 0) (i32.const 2048))
    (i32.store (i32.const 4) (i32.const 4))
    (drop (call $print (i32.const 1))))
  ;; What must not work ends the command with the number of its error.
  (func $refused (param $error i32)
    (if (local.get $error) (then (call $exit (local.get $error))))
    (call $worked))
  ;; Below descriptor 3, with the flags and rights of preview 1; the descriptor is written to 16.
  (func $open (param $path i32) (param $length i32) (param $how i32) (param $rights i64) (result i32)
    (call $path_open (i32.const 3) (i32.const 0) (local.get $path) (local.get $length) (local.get $how)
      (local.get $rights) (i64.const 0) (i32.const 0) (i32.const 16)))
  ;; MORE
  (func (export "_start")
    ;; BODY
    ))
