//! An awaitable that already holds its message, made by hand.
//!
//! `__anext__` with a message at hand must cost neither a future nor a `StopIteration`: CPython takes the
//! result of an awaitable with the `am_send` slot directly, which PyO3's classes do not have. Each is fresh
//! and single-use: returning the consumer itself would be cheaper, but `asyncio.gather` takes equal
//! awaitables for one and would deliver a message twice. One that nobody awaits gives its message back.
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

use crate::python::consumer::Consumer;
use crate::python::message::Message;

static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

#[repr(C)]
struct Ready {
    head: ffi::PyObject,
    /// A reference of ours to the `Message`, or null when it was awaited.
    message: AtomicPtr<ffi::PyObject>,
    /// A reference of ours to the `Consumer` that the message goes back to.
    consumer: *mut ffi::PyObject,
}

/// What gives `message` when it is awaited, and back to `consumer` when it is not.
pub(super) fn ready(message: Bound<'_, Message>, consumer: Bound<'_, Consumer>) -> PyResult<Py<PyAny>> {
    let py = message.py();
    let of = TYPE.get_or_try_init(py, || make_type(py))?.as_ptr().cast();
    // SAFETY: `of` is a ready type whose instances are as large as `Ready` and not tracked by the collector;
    // the fresh object is zeroed after its head, so it may be dropped from the first moment on. Both
    // references are moved into it; `dealloc` gives them up.
    unsafe {
        let object = Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(of, 0))?;
        let fields = object.as_ptr().cast::<Ready>();
        (*fields).consumer = consumer.into_ptr();
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
        name: c"penstock._engine.Ready".as_ptr(),
        basicsize: size_of::<Ready>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the interpreter copies what it needs of the spec; each function has the signature of its slot.
    unsafe {
        let made = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))?;
        Ok(made.cast_into::<PyType>()?.unbind())
    }
}

/// Takes the message out; null, with an exception set, when that happened before.
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

/// `tp_iternext`: for those that drive awaitables by hand.
unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this with a `Ready`, on an attached thread; what `take` gives is ours.
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
    // SAFETY: the last reference is gone, so the fields are ours; null fields are those that were never
    // set or that were taken. An instance of a heap type holds a reference to its type.
    unsafe {
        let py = Python::assume_attached();
        let of = ffi::Py_TYPE(object);
        let fields = object.cast::<Ready>();
        let message = Bound::from_owned_ptr_or_opt(py, *(*fields).message.get_mut());
        let consumer = Bound::from_owned_ptr_or_opt(py, (*fields).consumer);
        if let (Some(message), Some(consumer)) = (message, consumer)
            && let (Ok(message), Ok(consumer)) = (message.cast::<Message>(), consumer.cast::<Consumer>())
        {
            consumer.get().give_back(message.get());
        }
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(of.cast());
    }
}
