//! An awaitable that already holds its message, built by hand.
//!
//! `__anext__` with a message at hand must cost neither a future nor a `StopIteration`: CPython
//! takes the result of an awaitable with the `am_send` slot directly, and PyO3's classes do not
//! have that slot. Each awaitable is new and single-use: returning the consumer itself would be
//! cheaper, but `asyncio.gather` treats identical awaitables as one and would deliver a message
//! twice. An awaitable that is dropped without being awaited gives its message back.
#![allow(unsafe_code, reason = "a type with a slot that PyO3 does not expose")]

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

#[repr(C)]
struct Ready {
    head: ffi::PyObject,
    /// An owned reference to the message, or null once it was awaited.
    message: AtomicPtr<ffi::PyObject>,
    /// An owned reference to the consumer that the message goes back to.
    consumer: *mut ffi::PyObject,
    give_back: Option<GiveBack>,
}

/// Gives a message (the second argument) back to its consumer (the first).
pub(super) type GiveBack = for<'py> fn(&Bound<'py, PyAny>, &Bound<'py, PyAny>);

/// An awaitable that resolves to `message`, or calls `give_back` if it is dropped without being
/// awaited.
pub(super) fn ready(
    message: Bound<'_, PyAny>,
    consumer: Bound<'_, PyAny>,
    give_back: GiveBack,
) -> PyResult<Py<PyAny>> {
    let py = message.py();
    let of = TYPE.get_or_try_init(py, || make_type(py))?.as_ptr().cast();
    // SAFETY: `of` is a ready type whose instances are as large as `Ready` and not tracked by the
    // collector; the new object is zeroed after its head, so it may be dropped from the first
    // moment on. Both references are moved into it; `dealloc` releases them.
    unsafe {
        let object = Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(of, 0))?;
        let fields = object.as_ptr().cast::<Ready>();
        (*fields).consumer = consumer.into_ptr();
        (*fields).give_back = Some(give_back);
        (*fields).message.store(message.into_ptr(), Ordering::Release);
        Ok(object.unbind())
    }
}

fn make_type(py: Python<'_>) -> PyResult<Py<PyType>> {
    let slot = |slot: c_int, function: *mut c_void| ffi::PyType_Slot { slot, pfunc: function };
    let mut slots = [
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_iter, itself as *mut c_void),
        slot(ffi::Py_tp_iternext, next as *mut c_void),
        slot(ffi::Py_am_await, itself as *mut c_void),
        slot(ffi::Py_am_send, send as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"forebay._engine.Ready".as_ptr(),
        basicsize: size_of::<Ready>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the interpreter copies the spec; each function has the signature of its slot.
    unsafe {
        let made = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))?;
        Ok(made.cast_into::<PyType>()?.unbind())
    }
}

/// Takes the message out. Null, with an exception set, if it was taken before.
///
/// # Safety
/// `object` is a `Ready`, and the thread is attached.
unsafe fn take(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: promised by the caller.
    let message = unsafe { (*object.cast::<Ready>()).message.swap(ptr::null_mut(), Ordering::AcqRel) };
    if message.is_null() {
        // SAFETY: promised by the caller.
        let py = unsafe { Python::assume_attached() };
        PyRuntimeError::new_err("this awaitable has been awaited already").restore(py);
    }
    message
}

/// `am_send`: the result itself, without an exception that carries it.
unsafe extern "C" fn send(
    object: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: the interpreter calls this with a `Ready` and a place for the result.
    unsafe {
        *result = take(object);
        if (*result).is_null() { ffi::PySendResult::PYGEN_ERROR } else { ffi::PySendResult::PYGEN_RETURN }
    }
}

/// `tp_iternext`, for code that drives awaitables by hand.
unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this with a `Ready`, on an attached thread; `take` returns an
    // owned reference.
    unsafe {
        let message = take(object);
        if !message.is_null() {
            let py = Python::assume_attached();
            let message: Py<PyAny> = Bound::from_owned_ptr(py, message).unbind();
            PyStopIteration::new_err((message,)).restore(py);
        }
    }
    ptr::null_mut()
}

/// `__await__` and `__iter__`.
unsafe extern "C" fn itself(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this with a living object.
    unsafe { ffi::Py_NewRef(object) }
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone, so the fields are owned here; null fields were never set,
    // or were taken. An instance of a heap type holds a reference to its type.
    unsafe {
        let py = Python::assume_attached();
        let of = ffi::Py_TYPE(object);
        let fields = object.cast::<Ready>();
        let message = Bound::from_owned_ptr_or_opt(py, *(*fields).message.get_mut());
        let consumer = Bound::from_owned_ptr_or_opt(py, (*fields).consumer);
        if let (Some(message), Some(consumer), Some(give_back)) = (message, consumer, (*fields).give_back) {
            give_back(&consumer, &message);
        }
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(of.cast());
    }
}
