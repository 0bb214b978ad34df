;; A command of WASI preview 1 that prints what it reads; without arguments, which are `{}`, it fails.
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 512) "no arguments\n")
  (func (export "_start")
    ;; One buffer of 4 096 bytes at 1 024.
    (i32.store (i32.const 0) (i32.const 1024))
    (i32.store (i32.const 4) (i32.const 4096))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))
    (if (i32.le_u (i32.load (i32.const 16)) (i32.const 2))
      (then
        (i32.store (i32.const 0) (i32.const 512))
        (i32.store (i32.const 4) (i32.const 13))
        (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 16)))
        (call $exit (i32.const 3))))
    (i32.store (i32.const 4) (i32.load (i32.const 16)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))
