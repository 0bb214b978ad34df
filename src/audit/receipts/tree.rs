//! Merkle trees of RFC 6962 (2.1) and RFC 9162: over SHA-256, with 0x00 before a leaf and 0x01 before two nodes.

use sha2::{Digest, Sha256};

/// The hash of a leaf or of the nodes below.
pub(super) type Node = [u8; 32];

/// A tree that grows by one leaf at a time.
#[derive(Debug, Default)]
pub(super) struct Tree {
    leaves: u64,
    /// The roots of its complete subtrees, the largest first.
    complete: Vec<Node>,
}

impl Tree {
    pub(super) fn push(&mut self, line: &[u8]) {
        let mut node = leaf(line);
        let mut lower = self.leaves;
        while lower & 1 == 1
            && let Some(left) = self.complete.pop()
        {
            node = parent(&left, &node);
            lower >>= 1;
        }
        self.complete.push(node);
        self.leaves += 1;
    }

    pub(super) fn leaves(&self) -> u64 {
        self.leaves
    }

    pub(super) fn root(&self) -> Node {
        let root = self.complete.iter().rev().copied().reduce(|right, left| parent(&left, &right));
        root.unwrap_or_else(|| Sha256::digest(b"").into())
    }
}

pub(super) fn leaf(line: &[u8]) -> Node {
    Sha256::new_with_prefix([0_u8]).chain_update(line).finalize().into()
}

fn parent(left: &Node, right: &Node) -> Node {
    Sha256::new_with_prefix([1_u8]).chain_update(left).chain_update(right).finalize().into()
}

/// The inclusion proof of a leaf, its sibling first, and the root; `None` where there is no such leaf.
pub(super) fn path_to(mut level: Vec<Node>, mut index: usize) -> Option<(Vec<Node>, Node)> {
    level.get(index)?;
    let mut path = Vec::new();
    while level.len() > 1 {
        path.extend(level.get(index ^ 1));
        // A last node without a sibling is a node of the level above.
        level = level.chunks(2).map(|pair| pair.get(1).map_or(pair[0], |right| parent(&pair[0], right))).collect();
        index /= 2;
    }
    level.pop().map(|root| (path, root))
}

/// The root of the tree with so many leaves that has the leaf at this index; `None` if the proof has another length.
pub(super) fn root_by(path: &[Node], mut node: Node, mut index: u64, leaves: u64) -> Option<Node> {
    if index >= leaves {
        return None;
    }
    let (mut path, mut width) = (path.iter(), leaves);
    while width > 1 {
        if index ^ 1 < width {
            let sibling = path.next()?;
            node = if index & 1 == 0 { parent(&node, sibling) } else { parent(sibling, &node) };
        }
        (index, width) = (index / 2, width.div_ceil(2));
    }
    path.next().is_none().then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The leaves and roots of the reference implementation of Certificate Transparency.
    const LEAVES: [&str; 8] =
        ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
    const ROOTS: [&str; 8] = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];

    #[test]
    fn roots_are_those_of_certificate_transparency() {
        let mut tree = Tree::default();
        for (line, root) in LEAVES.iter().zip(ROOTS) {
            tree.push(&hex::decode(line).unwrap());
            assert_eq!(hex::encode(tree.root()), root, "{} leaves", tree.leaves());
        }
    }

    #[test]
    fn each_leaf_of_a_tree_has_a_proof_that_fits_no_other_place() {
        let mut tree = Tree::default();
        for leaves in 1..70_usize {
            tree.push(&leaves.to_be_bytes());
            let level: Vec<_> = (1..=leaves).map(|at| leaf(&at.to_be_bytes())).collect();
            for index in 0..leaves {
                let (path, root) = path_to(level.clone(), index).unwrap();
                assert_eq!(root, tree.root());
                for other in 0..=leaves {
                    let found = root_by(&path, level[index], other as u64, leaves as u64);
                    assert_eq!(found == Some(root), other == index, "leaf {index} of {leaves} as {other}");
                }
                let longer = [&path[..], &[root]].concat();
                assert_eq!(root_by(&longer, level[index], index as u64, leaves as u64), None);
            }
            assert_eq!(path_to(level, leaves), None);
        }
    }
}
