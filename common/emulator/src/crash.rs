//! A kernel's access to unmapped memory, division by zero or endless loop stops its block as a
//! fault instead of the program.

use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use crate::calls::{self, Calls};
use crate::fault::{Fault, Place};
use crate::run::{ThreadContext, emulator_current_slot};
use crate::site::{Places, calls_number};

const REFUSALS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE];

static BEFORE: OnceLock<[libc::sigaction; REFUSALS.len()]> = OnceLock::new();

const TICK: c_int = libc::SIGVTALRM;

/// The watchdog's ticks without a switch before a thread is out of patience.
const LOOKS: u32 = 8;

/// Stops kernels of the OS thread that owns it when they run too long. On processors other than
/// x86-64 such a kernel ends or hangs the program.
#[derive(Default)]
pub(crate) struct Watchdog(Option<(libc::timer_t, Duration)>);

impl Watchdog {
    pub(crate) fn watch(&mut self, patience: Duration) {
        let timer = match self.0 {
            Some((_, known)) if known == patience => return,
            Some((timer, _)) => timer,
            None => {
                install();
                let Some(timer) = timer_of_this_thread() else {
                    return; // an endless kernel is then as it is in any other program
                };
                timer
            }
        };
        self.0 = Some((timer, patience));
        let tick = patience / LOOKS;
        let interval = libc::timespec {
            tv_sec: tick.as_secs() as libc::time_t,
            tv_nsec: tick.subsec_nanos().max(1).into(),
        };
        let times = libc::itimerspec {
            it_interval: interval,
            it_value: interval,
        };
        // SAFETY: the timer lives, and the call reads a struct that lives here.
        unsafe { libc::timer_settime(timer, 0, &times, std::ptr::null_mut()) };
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some((timer, _)) = self.0 {
            // SAFETY: it was made for this object, and nobody else knows it.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

fn timer_of_this_thread() -> Option<libc::timer_t> {
    // SAFETY: all zeros is a sigevent and a timer_t; the call reads the one and writes the other.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = TICK;
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer: libc::timer_t = std::mem::zeroed();
        let status = libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &mut event, &mut timer);
        (status == 0).then_some(timer)
    }
}

fn install() {
    static INSTALLED: Once = Once::new();
    // SAFETY: all zeros is a sigaction; each call reads and writes structs that live here; and the
    // handlers do what such may do.
    INSTALLED.call_once(|| unsafe {
        BEFORE.get_or_init(|| {
            REFUSALS.map(|signal| {
                let mut before: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut before);
                before
            })
        });
        let set = |signal, handler: Handler, flags| {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | flags;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        };
        for signal in REFUSALS {
            set(signal, on_refusal, 0);
        }
        set(TICK, on_tick, libc::SA_RESTART);
    });
}

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

unsafe extern "C" fn on_refusal(signal: c_int, info: *mut libc::siginfo_t, machine: *mut c_void) {
    // SAFETY: the system hands over live structs. Nothing here allocates or locks.
    unsafe {
        if let Some(stopped) = Stopped::from_machine(machine) {
            return stopped.goes_on_in_fail(signal, (*info).si_addr() as usize);
        }
        let mut before = libc::SIG_DFL;
        for (refusal, action) in REFUSALS.iter().zip(BEFORE.get().into_iter().flatten()) {
            if *refusal == signal {
                before = action.sa_sigaction;
            }
        }
        match before {
            libc::SIG_DFL | libc::SIG_IGN => {
                // The instruction is retried, and the program dies of it.
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
            }
            handler => std::mem::transmute::<usize, Handler>(handler)(signal, info, machine),
        }
    }
}

/// Fails a CUDA thread that has run for too long, but only between two instructions of a kernel: a
/// callback of the emulator may hold a lock.
unsafe extern "C" fn on_tick(signal: c_int, _: *mut libc::siginfo_t, machine: *mut c_void) {
    // SAFETY: as in on_refusal.
    unsafe {
        let Some(stopped) = Stopped::from_machine(machine) else {
            return;
        };
        let run = stopped.context.run();
        let switches = run.switches.get();
        let (known, ticks) = run.watched.get();
        let looks = if known == switches { ticks + 1 } else { 0 };
        run.watched.set((switches, looks));
        if looks >= LOOKS && calls::is_of_kernels(stopped.code()) {
            stopped.goes_on_in_fail(signal, 0);
        }
    }
}

struct Stopped<'a> {
    context: &'a ThreadContext,
    registers: &'a mut libc::mcontext_t,
}

#[cfg(target_arch = "x86_64")]
impl Stopped<'_> {
    /// Returns the stopped CUDA thread; none if the processor was on no such thread's stack.
    ///
    /// # Safety
    /// `machine` is what a signal handler was given.
    unsafe fn from_machine(machine: *mut c_void) -> Option<Self> {
        // SAFETY: the slot holds the context of the thread that runs, or of one that has run: what
        // it says is believed on the stack that it names alone.
        let (context, stopped) = unsafe {
            let current = (*emulator_current_slot()).cast::<ThreadContext>();
            (current.as_ref()?, &mut *machine.cast::<libc::ucontext_t>())
        };
        let registers = &mut stopped.uc_mcontext;
        let stack = registers.gregs[libc::REG_RSP as usize] as usize;
        let is_running = context.stack.contains(&stack);
        is_running.then_some(Self { context, registers })
    }

    fn code(&self) -> usize {
        self.registers.gregs[libc::REG_RIP as usize] as usize
    }

    fn goes_on_in_fail(self, signal: c_int, address: usize) {
        let code = self.code();
        let registers = &mut self.registers.gregs;
        let stack = registers[libc::REG_RSP as usize] as usize;
        let mut set = |register: c_int, value: usize| registers[register as usize] = value as i64;
        set(libc::REG_RDI, std::ptr::from_ref(self.context) as usize);
        set(libc::REG_RSI, signal as usize);
        set(libc::REG_RDX, address);
        set(libc::REG_RCX, code);
        // Below the red zone, and aligned as after a call.
        set(libc::REG_RSP, ((stack - 128) & !15) - 8);
        set(libc::REG_RIP, fail as *const () as usize);
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Stopped<'_> {
    unsafe fn from_machine(_: *mut c_void) -> Option<Self> {
        None
    }

    fn code(&self) -> usize {
        unreachable!("there is none")
    }

    fn goes_on_in_fail(self, _: c_int, _: usize) {}
}

/// Runs on the thread's own stack, outside of the signal handler.
unsafe extern "C-unwind" fn fail(
    thread: *const ThreadContext,
    signal: c_int,
    address: usize,
    code: usize,
) -> ! {
    // SAFETY: it is the context of the running thread.
    let context = unsafe { &*thread };
    let run = context.run();
    let place = match run.touching.get() {
        Some(site) => site.place(),
        None => place_of(code),
    };
    let message = match signal {
        libc::SIGFPE => "a division by zero, or one whose result has too many bits".to_owned(),
        TICK => format!(
            "a loop without end, or too much work for one thread: after {} s of processor time it \
             has not waited for any other",
            run.patience.as_secs_f64()
        ),
        _ => {
            // The processor reports 0 for non-canonical addresses.
            let access = match address {
                0 => "address 0, or one that no memory can have".to_owned(),
                _ => format!("address {address:#x}, where no memory is"),
            };
            context.fail(Fault::OutOfBounds {
                block: context.block_idx,
                thread: context.thread,
                access,
                place,
            })
        }
    };
    context.fail(Fault::Trap {
        block: context.block_idx,
        thread: context.thread,
        message,
        place,
    })
}

fn place_of(code: usize) -> Place {
    // As if it were a return address.
    let call = calls_number(Calls::one(code + 1));
    Places::default().get(call).swap_remove(0)
}
