//! Images of modules, from which calls go on.

use super::*;
use crate::guest::module_image::ENTRY_BYTES;
use crate::guest::tests::Ticker;

#[test]
fn each_call_begins_with_the_image_of_its_module_and_leaves_nothing_in_it() {
    let made = Made::with(EXPORTS);
    let mut tried = made.begun();
    let file = tried.files_mut().create_file(ROOT, "tmp/kept").unwrap();
    tried.files_mut().write(file, 0, b"kept").unwrap();
    let image = made.module_of(&mut tried);
    for _ in 0..3 {
        let guest = made.entered(&image).unwrap();
        let mut system = image.system(&made.mounts, &[], Vec::new(), Vec::new()).unwrap();
        let mut content = [0; 4];
        system.files().read(file, 0, &mut content).unwrap();
        assert_eq!(&content, b"kept");
        system.files_mut().write(file, 0, b"lost").unwrap();
        let program = Program { session: None, ..made.program(Some(system)) };
        let ended = made.runtime.block_on(guest.run(program));
        assert_eq!(ended.outcome.end, End::Exited { code: 14 }, "it goes on after the one program");
        assert!(matches!(ended.left, Remains::Used(_)));
    }
}

#[test]
fn a_module_has_no_image_without_its_beginning_or_of_another_interpreter() {
    let made = Made::with(EXPORTS);
    let parts = made.parts(&mut made.begun());
    let part = |at: usize| postcard::from_bytes::<ImagePart>(&parts[at]).unwrap();
    assert!(ModuleImage::beginning_with(part(1)).is_err());
    let mut image = ModuleImage::beginning_with(part(0)).unwrap();
    assert!(image.add(part(0)).is_err());
    let other = Made::with("");
    assert!(other.entered(&image).is_err());
}

/// The module changed code that runs before the program arrives.
#[test]
fn a_module_cannot_keep_its_instances_from_requesting_their_programs() {
    let made = Made::entered_with("(if (global.get $count) (then (loop $again (br $again))))", EXPORTS);
    let image = made.module();
    let _ticker = Ticker::new(made.template.linked.module().engine());
    let refused = made.entered(&image).unwrap_err();
    assert!(refused.contains("keeps the instance from requesting a program"), "{refused}");
}

#[test]
fn a_module_has_little_memory_until_its_instances_have_their_programs() {
    let grows = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))";
    let entry = |most: u32| {
        format!(
            "(if (global.get $count) (then {grows} (if (i32.gt_u (memory.size) (i32.const {most})) (then unreachable))))"
        )
    };
    // Ten pages are in the image.
    let most = 10 + u32::try_from(ENTRY_BYTES >> 16).unwrap();
    let made = Made::entered_with(&entry(most), EXPORTS);
    made.entered(&made.module()).unwrap();
    let made = Made::entered_with(&entry(most - 1), EXPORTS);
    made.entered(&made.module()).unwrap_err();
}
