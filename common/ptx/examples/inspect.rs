//! Decodes every entry of PTX files and says what is refused.

fn main() {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).unwrap();
        let module = match ptx::Module::parse(&path, &text) {
            Ok(module) => module,
            Err(error) => {
                println!("{error}");
                continue;
            }
        };
        for entry in module.entries() {
            match module.entry(&entry.name) {
                Ok(program) => println!(
                    "{}: {} instructions, {} opcodes",
                    entry.name,
                    program.instructions(),
                    program.opcodes().len()
                ),
                Err(error) => println!("{}: {error}", entry.name),
            }
        }
    }
}
