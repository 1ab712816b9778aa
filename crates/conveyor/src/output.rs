//! What goes to standard output. `print!` and `println!` of this crate are these: the standard ones
//! panic when their reader has gone away, as `… | head` does.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
};

/// Writes to standard output. When nobody reads it any more the program has nothing left to say and
/// ends well.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("conveyor: standard output cannot be written: {error}");
            std::process::exit(1);
        }
    }
}

macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

macro_rules! println {
    ($text:literal $($rest:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($text $($rest)*))) };
}
