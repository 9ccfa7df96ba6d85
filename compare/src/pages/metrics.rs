pub fn page() -> String {
    String::new()
}
