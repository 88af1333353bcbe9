//! What `RNN_GPU_DEBUG` shows of Direct3D and DirectML.

use std::{ffi::CStr, fmt::Arguments, io::Write, sync::OnceLock};

use libloading::os::windows::Library;
use windows::{
    Win32::Graphics::Direct3D12::{D3D12_MESSAGE, ID3D12Device, ID3D12GraphicsCommandList, ID3D12InfoQueue},
    core::Interface,
};

/// Whether the variable asks for more, once per process.
pub(crate) fn is_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| {
        let value = std::env::var("RNN_GPU_DEBUG").unwrap_or_default();
        !matches!(value.trim(), "" | "0")
    })
}

/// Prints a line to standard error. Write errors are ignored.
pub(crate) fn say(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "RNN_GPU_DEBUG {line}");
}

/// Whether command lists carry the names of steps: debuggers of GPUs show them.
pub(crate) fn has_markers() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let debuggers = ["WinPixGpuCapturer.dll", "WinPixTimingCapturer.dll", "renderdoc.dll"];
        is_enabled() || debuggers.iter().any(|&name| Library::open_already_loaded(name).is_ok())
    })
}

/// Calls `work`, whose commands get a name.
pub(crate) fn named(list: &ID3D12GraphicsCommandList, name: &str, work: impl FnOnce()) {
    /// The name is text in bytes that ends with a zero.
    const PIX_EVENT_ANSI_VERSION: u32 = 1;
    if !has_markers() {
        return work();
    }
    let text: Vec<u8> = name.bytes().filter(|&byte| byte != 0).chain([0]).collect();
    // SAFETY: the list is being recorded, and the text is valid during the call, which copies it.
    unsafe { list.BeginEvent(PIX_EVENT_ANSI_VERSION, Some(text.as_ptr().cast()), text.len() as u32) };
    work();
    // SAFETY: the list is being recorded, and the event has begun.
    unsafe { list.EndEvent() };
}

/// The messages of a device's debug layers.
pub(crate) struct Messages(Option<ID3D12InfoQueue>);

impl Messages {
    pub(crate) fn of(device: &ID3D12Device) -> Messages {
        // Without the debug layer, the device has no messages.
        Messages(is_enabled().then(|| device.cast().ok()).flatten())
    }

    /// Prints the new messages.
    pub(crate) fn tell(&self, name: &str) {
        let Some(queue) = &self.0 else { return };
        // SAFETY: the call has no preconditions.
        let count = unsafe { queue.GetNumStoredMessages() };
        for at in 0..count {
            if let Some(text) = message(queue, at) {
                say(format_args!("{name}: {text}"));
            }
        }
        if count > 0 {
            // SAFETY: as above.
            unsafe { queue.ClearStoredMessages() };
        }
    }
}

/// The text of a message.
fn message(queue: &ID3D12InfoQueue, at: u64) -> Option<String> {
    let mut bytes = 0;
    // SAFETY: without a place for the message, the call stores its size.
    unsafe { queue.GetMessage(at, None, &mut bytes) }.ok()?;
    // In whole words, for the alignment of the structure.
    let mut place = vec![0u64; bytes.div_ceil(size_of::<u64>())];
    if bytes < size_of::<D3D12_MESSAGE>() {
        return None;
    }
    let start = place.as_mut_ptr().cast::<D3D12_MESSAGE>();
    // SAFETY: the place has the size and the alignment of the message. Its text lies in it and ends with a zero.
    unsafe {
        queue.GetMessage(at, Some(start), &mut bytes).ok()?;
        let text = (*start).pDescription;
        (!text.is_null()).then(|| CStr::from_ptr(text.cast()).to_string_lossy().into_owned())
    }
}
