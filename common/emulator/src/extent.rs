//! Sizes and places in three dimensions.

/// The place of a block in its grid, in x, y and z.
pub type BlockIndex = [u32; 3];

/// The size of a grid or block, in x, y and z.
pub(crate) type Extent = [u32; 3];
